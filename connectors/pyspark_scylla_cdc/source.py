"""The data source that Spark finds under the name ``scylla_cdc``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import DataType, StructField, StructType

from cdc_reader.errors import CdcError, SchemaError

if TYPE_CHECKING:
    from cdc_reader.cql.schema import LogSchema
    from pyspark_scylla_cdc.options.source_options import SourceOptions

# Spark imports this module to look for data sources, even if none is used, so slow imports are
# deferred to their first use.


class ScyllaCdcDataSource(DataSource):
    """The CDC log of a ScyllaDB table, in one of several formats.

    For the options, see ``docs/reference/spark-options.md``. ``load()`` validates options, table
    and cluster, and raises a one-line error.
    """

    @classmethod
    def name(cls) -> str:
        return "scylla_cdc"

    def schema(self) -> StructType:
        from pyspark_scylla_cdc.options.errors import hide_traceback

        with hide_traceback():
            return self._load()[2]

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_scylla_cdc.batch import BatchReader
        from pyspark_scylla_cdc.options.errors import hide_traceback

        with hide_traceback():
            return BatchReader(*self._as_loaded(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from pyspark_scylla_cdc.options.errors import RefusedStream
        from pyspark_scylla_cdc.spark_versions import for_this_spark
        from pyspark_scylla_cdc.streaming.stream import StreamReader

        try:
            options, log_schema, names = self._as_loaded(schema)
            return for_this_spark(StreamReader(options, log_schema, names), options.limits)
        except CdcError as error:
            return RefusedStream(error)

    def _as_loaded(self, schema: StructType) -> tuple[SourceOptions, LogSchema, tuple[str, ...]]:
        """Return the options, the log's schema and the column names to read for a DataFrame.

        Raises SchemaError unless the DataFrame's `schema` is part of the table's current schema.
        """
        from pyspark_scylla_cdc.sessions import refuse_new_columns

        options, log_schema, current = self._load()
        known = {field.name: field.dataType for field in current}
        for field in schema:
            if known.get(field.name) != field.dataType or not field.nullable:
                raise _no_such_column(options, field, known)
        refuse_new_columns(options, known, schema.names)
        return options, log_schema, tuple(schema.names)

    def _load(self) -> tuple[SourceOptions, LogSchema, StructType]:
        from pyspark_scylla_cdc.options.source_options import SourceOptions
        from pyspark_scylla_cdc.schema import spark_schema
        from pyspark_scylla_cdc.sessions import SourceClock, row_format, schema_of

        options = SourceOptions.parse(self.options)
        log_schema = schema_of(options)
        if options.relative:
            clock = SourceClock(options)
            options = options.corrected(clock.correction())
            options.window(clock.now())  # raises an error if the start is after the end
        schema = row_format(options, log_schema).schema
        marks = options.takes_new_snapshots
        return options, log_schema, spark_schema(schema, log_schema.base, marks=marks)


def _no_such_column(
    options: SourceOptions, field: StructField, known: Mapping[str, DataType]
) -> SchemaError:
    if field.name in known:
        there, wanted = known[field.name].simpleString(), field.dataType.simpleString()
        if there == wanted:  # the text of a type does not say what may be null
            return SchemaError(
                f"{options.table}: column {field.name} is NOT NULL, or has parts that are, and in "
                "a log all values may be null: declare all of them as nullable in .schema(...)"
            )
        return SchemaError(
            f"{options.table}: column {field.name} is of type {there}, and the DataFrame has it as "
            f"{wanted}: load it again, without .schema(...) or with that type"
        )
    return SchemaError(
        f"{options.table}: the DataFrame has a column {field.name}, but format "
        f"'{options.format.name}' of this table has the columns {', '.join(known)}: load it "
        "again, without .schema(...) or with some of these columns"
    )
