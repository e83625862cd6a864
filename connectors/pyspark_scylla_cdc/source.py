"""The data source that Spark finds under the name ``scylla_cdc``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from cdc_reader.errors import CdcError, SchemaError

if TYPE_CHECKING:
    from cdc_reader.schema import LogSchema
    from pyspark_scylla_cdc.options import SourceOptions

# Spark imports this module in search of data sources, whether one is used or not: what takes
# time to import is imported when it is used.


class ScyllaCdcDataSource(DataSource):
    """The CDC log of a ScyllaDB table: the log table's columns, then ``_commit_timestamp``.

    Options: see `pyspark_scylla_cdc.options`. Whatever is wrong with them, with the table or
    with the way to the cluster is said at ``load()``, in one line.
    """

    @classmethod
    def name(cls) -> str:
        return "scylla_cdc"

    def schema(self) -> StructType:
        return self._load()[2]

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_scylla_cdc.batch import BatchReader

        return BatchReader(*self._as_loaded(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from pyspark_scylla_cdc.stream import StreamReader

        return StreamReader(*self._as_loaded(schema))

    def _as_loaded(self, schema: StructType) -> tuple[SourceOptions, LogSchema]:
        """The log's schema, provided that it still is the one of the DataFrame."""
        options, log_schema, current = self._load()
        if current != schema:
            raise SchemaError(
                f"{options.table}: its log has the columns {', '.join(current.names)}, and the "
                f"DataFrame was loaded with {', '.join(schema.names)}, or with other types: "
                "load it again, and without .schema(...)"
            )
        return options, log_schema

    def _load(self) -> tuple[SourceOptions, LogSchema, StructType]:
        from pyspark_scylla_cdc.log import batch_schema, schema_of
        from pyspark_scylla_cdc.options import SourceOptions
        from pyspark_scylla_cdc.types import spark_schema

        try:
            options = SourceOptions.parse(self.options)
            log_schema = schema_of(options)
            batches = batch_schema(log_schema)
        except CdcError as error:
            # Spark shows the whole traceback: of an error that says it all, one frame is enough.
            raise error.with_traceback(None) from None
        return options, log_schema, spark_schema(batches)
