"""A copy in a Delta table, written by deltalake, which does not need Spark."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_reader._time import Micros
from cdc_reader.copies.columns import OwnNames
from cdc_reader.copies.delta import DeltaFiles, Remedies
from cdc_reader.copies.merging import Merge, among
from cdc_reader.copies.properties import BUCKET, NO_BUCKETS, STATE, application, own_properties
from cdc_reader.copies.refusals import new_in_map
from cdc_reader.copies.row_state import first_expiry
from cdc_reader.cql.names import without_case
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.tables.differences import new_fields
from pyspark_scylla_cdc.tables.layout import Layout, column
from pyspark_scylla_cdc.tables.row_updates import NEEDED, FewChanges, RowsNeeded
from pyspark_scylla_cdc.tables.sink import (
    BUCKETS,
    IN_PARQUET,
    Files,
    MicroBatch,
    as_in_target,
    configured,
    of_version,
    refuse_columns,
    version_of,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

_FEW = 100_000
"""The number of changes up to which it is faster to fold them in this process."""
_AS_PLANNED = {"spark.sql.adaptive.enabled": "false"}
"""Spark runs its plans as they are: to adapt them takes as long as a small micro-batch."""
_REMEDIES = Remedies(
    install="install deltalake (pip install 'scylla-cdc[lake]'), or use a session with Delta "
    "Lake's extension",
    table="use a session with Delta Lake's extension",
    column="leave the column out with the option columns, or use a session with Delta Lake's "
    "extension",
)


class DeltaLakeSink:
    """A `Sink` that writes to the Delta table at a path.

    One commit writes the rows and records the micro-batch.

    The rows that a micro-batch touches pass through the driver's memory.
    """

    def __init__(self, path: str) -> None:
        self._files = DeltaFiles(path, _REMEDIES)
        self.target = path
        self.few = FewChanges(_FEW)

    def prepare(self, layout: Layout) -> Layout:
        """See `Sink.prepare`."""
        self._files.refuse_backticks(layout.schema.fieldNames())
        refuse_columns(self.target, layout.schema, IN_PARQUET, "Spark's reader of Parquet files")
        new = layout.with_own_columns()
        self._files.create(self._schema(new.stored), own_properties(new.columns), new.bucket)
        table = self._files.table()
        there = _schema_of(table)
        _refuse_case(self.target, layout.schema, there)
        layout = as_in_target(self.target, layout, there, table.metadata().configuration)
        for field in new_fields(there, layout.schema):
            if field.in_map:
                remedy = f"delete target and checkpoint to start over, or {_REMEDIES.table}"
                raise new_in_map(self.target, str(field), remedy)
        return layout

    def add_columns(self, layout: Layout) -> None:
        """See `Sink.add_columns`."""
        table = self._files.table()
        if STATE not in table.metadata().configuration:
            table.alter.set_table_properties(
                own_properties(layout.columns), raise_if_not_exists=False
            )
        if new_fields(_schema_of(table), layout.stored):
            self._files.add_columns(table, self._schema(layout.stored))

    def last(self, query: str) -> MicroBatch | None:
        """See `Sink.last`."""
        return of_version(query, self._files.table().transaction_version(application(query)))

    def buckets(self) -> int:
        """See `Sink.buckets`."""
        return self._files.table().transaction_version(BUCKETS) or 1

    def set_buckets(self, count: int, spark: SparkSession) -> None:  # noqa: ARG002 - works without it
        """See `Sink.set_buckets`."""
        self._files.note(self._files.table(), BUCKETS, count)

    def divide(self, layout: Layout, rows: DataFrame, replacing: Collection[int]) -> None:
        """See `Sink.divide`."""
        table = self._files.table()
        self._files.deltalake.write_deltalake(
            table,
            rows.toArrow(),
            mode="overwrite",
            predicate=among(layout.columns, replacing),
            commit_properties=self._files.noted(BUCKETS, layout.buckets),
            writer_properties=self._files.writer_properties(table),
        )

    def rows(self, spark: SparkSession, buckets: Collection[int] | None = None) -> DataFrame:
        """See `Sink.rows`."""
        table = self._files.table()
        own = table.metadata().configuration.get(BUCKET, NO_BUCKETS)
        schema, partitions = _schema_of(table), table.metadata().partition_columns
        stored = StructType([field for field in schema if field.name not in partitions])
        actions = pa.table(table.get_add_actions(flatten=False))
        if own in partitions and buckets is not None:
            place = pc.struct_field(actions.column("partition"), own)
            actions = actions.filter(pc.is_in(place.cast(pa.int32()), pa.array([*buckets])))
        if not actions.num_rows:  # Spark would warn that no path is left
            return spark.createDataFrame([], stored if own in partitions else schema)
        files = (_literal(f"{self.target.rstrip('/')}/{path}") for path in _paths(actions))
        rows = spark.read.schema(stored).parquet(*files)
        if not partitions or own in partitions:
            return rows
        return _with_partitions(rows, actions, table)

    def append(self, batch: MicroBatch, layout: Layout, rows: DataFrame) -> Micros | None:
        """See `Sink.append`."""
        found = rows.toArrow()
        self._files.append(self._files.table(), found, *_done(batch))
        return first_expiry(found.column(layout.state))

    def commit(
        self,
        batch: MicroBatch,
        layout: Layout,
        updates: DataFrame | pa.Table,
        spark: SparkSession,
    ) -> Micros | None:
        """See `Sink.commit`."""
        rows, table = _collected(updates, spark), self._files.table()
        buckets = _values(rows, layout.bucket)
        if NEEDED in _values(rows, layout.kind):
            needed = rows.filter(pc.equal(rows.column(layout.kind), NEEDED))
            buckets = _values(needed, layout.bucket)
            raise RowsNeeded(needed.select(layout.partition), buckets if layout.bucket else None)
        self._files.merge(table, rows, Merge(layout.columns, buckets), *_done(batch))
        return first_expiry(rows.column(layout.state))

    def files(self, spark: SparkSession) -> dict[int, Files]:  # noqa: ARG002 - not by Spark
        """See `Sink.files`."""
        table = self._files.table()
        own = table.metadata().configuration.get(BUCKET, NO_BUCKETS)
        actions = pa.table(table.get_add_actions(flatten=False))
        place = pa.array([0] * len(actions), pa.int32())
        if own != NO_BUCKETS:
            place = pc.struct_field(actions.column("partition"), own)
        rows = pc.fill_null(actions.column("num_records"), 1)
        counted = pa.table(
            {"num_records": rows, "size_bytes": actions.column("size_bytes"), "place": place}
        )
        sums = counted.group_by("place").aggregate(
            [("num_records", "sum"), ("size_bytes", "sum"), ([], "count_all")]
        )
        return {
            int(row["place"]): Files(
                row["count_all"], row["num_records_sum"], row["size_bytes_sum"]
            )
            for row in sums.to_pylist()
        }

    def compact(self, layout: Layout, buckets: Sequence[int]) -> None:
        """See `Sink.compact`."""
        assert layout.bucket is not None  # noqa: S101 - only copies with buckets are compacted
        some = (layout.bucket, "in", [str(number) for number in buckets])
        table = self._files.table()
        properties = self._files.writer_properties(table)
        table.optimize.compact(partition_filters=[some], writer_properties=properties)

    def clean(self, spark: SparkSession) -> None:  # noqa: ARG002 - works without it
        """See `Sink.clean`."""
        self._files.table().vacuum(dry_run=False)

    def _schema(self, schema: StructType) -> Schema:
        found: Schema = self._files.deltalake.Schema.from_json(schema.json())  # as Delta writes it
        return found


def _collected(updates: DataFrame | pa.Table, spark: SparkSession) -> pa.Table:
    if isinstance(updates, pa.Table):
        return updates
    with configured(spark, _AS_PLANNED):
        return updates.toArrow()


def _done(batch: MicroBatch) -> tuple[str, int]:
    """Return what a commit records of a micro-batch."""
    return application(batch.query), version_of(batch)


def _paths(actions: pa.Table) -> list[str]:
    """Return the paths of a table's files, below its own; its log has them percent-encoded."""
    return [unquote(path) for path in actions.column("path").to_pylist()]


def _literal(path: str) -> str:
    """Return a pattern that only this path matches: Spark takes the paths of files as patterns."""
    return re.sub(r"([\[\]{}*?])", r"\\\1", path)


def _with_partitions(rows: DataFrame, actions: pa.Table, table: DeltaTable) -> DataFrame:
    """Add the columns by which the table is partitioned: only its log contains their values."""
    names = [path.rpartition("/")[2] for path in _paths(actions)]
    if len(names) != len({*names}):
        remedy = "files in two of its partitions have the same name: give a new path"
        raise ConfigurationError("target", table.table_uri, remedy)
    types = pa.schema(table.schema().to_arrow())
    file = OwnNames.beside(types.names).own("file")
    cells = pa.RecordBatch.from_struct_array(actions.column("partition").combine_chunks())
    values = {name: cells.column(name).cast(types.field(name).type) for name in cells.schema.names}
    files = rows.sparkSession.createDataFrame(pa.table({**values, file: names}))
    located = rows.withColumn(file, rows.metadataColumn("_metadata")["file_name"])
    found = located.join(sf.broadcast(files), file)
    return found.select(*map(column, types.names))


def _refuse_case(target: str, schema: StructType, there: StructType) -> None:
    """Raise ConfigurationError for columns that only deltalake distinguishes from the target's."""
    known = {without_case(name): name for name in there.names}
    for name in schema.names:
        if (other := known.get(without_case(name), name)) != name:
            remedy = (
                f"it has a column {other}, and the table a column {name}, which deltalake "
                "distinguishes: use a session with Delta Lake's extension, or give a new path"
            )
            raise ConfigurationError("target", target, remedy)


def _values(rows: pa.Table, name: str | None) -> set[Any]:
    """Return the different values of a column."""
    return set() if name is None else {*pc.unique(rows.column(name)).to_pylist()}


def _schema_of(table: DeltaTable) -> StructType:
    return from_arrow_schema(pa.schema(table.schema().to_arrow()))
