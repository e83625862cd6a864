"""A copy in a Delta table, written by deltalake, which does not need Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_reader.errors import ConfigurationError, SchemaError
from pyspark_scylla_cdc.tables.differences import new_fields
from pyspark_scylla_cdc.tables.sink import (
    GONE,
    Layout,
    MicroBatch,
    application,
    check_target,
    merged,
    of_version,
    same_row,
    version_of,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema


class DeltaLakeSink:
    """A `Sink` that writes to the Delta table at a path.

    One commit writes the rows and records the micro-batch.

    The rows that a micro-batch touches pass through the driver's memory.
    """

    def __init__(self, path: str) -> None:
        try:
            import deltalake
        except ImportError:
            remedy = (
                "install deltalake (pip install deltalake), or use a session with Delta Lake's "
                "extension"
            )
            raise ConfigurationError("format", "delta", remedy) from None
        self._deltalake = deltalake
        self.target = path

    def prepare(self, layout: Layout) -> None:
        """See `Sink.prepare`."""
        schema = self._schema(layout.schema)
        table = self._deltalake.DeltaTable.create(self.target, schema=schema, mode="ignore")
        there = _schema_of(table)
        check_target(self.target, layout, there)
        for field in new_fields(there, layout.schema):
            if field.in_map:
                raise SchemaError(
                    f"{self.target} lacks the field {field}, which the table's type "
                    "has gained inside a map, and deltalake cannot add it: delete target and "
                    "checkpoint to start over, or use a session with Delta Lake's extension"
                )

    def add_columns(self, layout: Layout) -> None:
        """See `Sink.add_columns`."""
        table = self._table()
        if new_fields(_schema_of(table), layout.schema):
            nothing = pa.schema(self._schema(layout.schema).to_arrow()).empty_table()
            self._deltalake.write_deltalake(table, nothing, mode="append", schema_mode="merge")

    def last(self, query: str) -> MicroBatch | None:
        """See `Sink.last`."""
        return of_version(query, self._table().transaction_version(application(query)))

    def rows(self, spark: SparkSession) -> DataFrame:
        """See `Sink.rows`."""
        table = self._table()
        files = map(unquote, table.file_uris())  # Spark takes paths as they are
        return spark.read.schema(_schema_of(table)).parquet(*files)

    def commit(
        self, batch: MicroBatch, layout: Layout, before: DataFrame, after: DataFrame
    ) -> None:
        """See `Sink.commit`."""
        rows = merged(layout, before, after).toArrow()
        table, deltalake = self._table(), self._deltalake
        noted = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(application(batch.query), version_of(batch))]
        )
        if not rows.num_rows:  # a merge without rows would not commit
            nothing = rows.drop_columns(GONE)
            deltalake.write_deltalake(table, nothing, mode="append", commit_properties=noted)
            return
        (
            table.merge(
                rows,
                same_row(layout),
                source_alias="s",
                target_alias="t",
                commit_properties=noted,
            )
            .when_matched_delete(f"s.{GONE}")
            .when_matched_update_all(except_cols=[GONE])
            .when_not_matched_insert_all(f"NOT s.{GONE}", except_cols=[GONE])
            .execute()
        )

    def _schema(self, schema: StructType) -> Schema:
        return self._deltalake.Schema.from_json(schema.json())  # Delta writes schemas as Spark does

    def _table(self) -> DeltaTable:
        return self._deltalake.DeltaTable(self.target)


def _schema_of(table: DeltaTable) -> StructType:
    return from_arrow_schema(pa.schema(table.schema().to_arrow()))
