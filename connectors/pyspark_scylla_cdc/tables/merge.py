"""A copy in a table into which Spark merges rows: Iceberg, or Delta with Delta Lake's library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
)

from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.tables.differences import Difference, fitted, new_fields
from pyspark_scylla_cdc.tables.ranges import column, quoted
from pyspark_scylla_cdc.tables.sink import (
    APPLICATION,
    IN_PARQUET,
    MARKER,
    Layout,
    Merge,
    MicroBatch,
    application,
    as_in_target,
    empty_in_partition,
    of_version,
    refuse_append_only,
    refuse_columns,
    version_of,
)

_VIEW = "__scylla_cdc_merged"
_BATCH, _QUERY, _PLAN = (f"{APPLICATION}.{name}" for name in ("batch", "query", "plan"))
_TRANSACTION = "spark.databricks.delta.write.txn"
_IN_ICEBERG = frozenset(
    # the table's own: https://iceberg.apache.org/spec/#reserved-field-ids
    "_deleted _file _last_updated_sequence_number _partition _pos _row_id _spec_id "
    # Spark's, in a MERGE; it does not look whether the table has such a column
    "__original_row_id__file __original_row_id__pos "
    "__row_from_source __row_from_target __row_id __row_operation".split()
)
_IN_DELTA = IN_PARQUET.union(
    ("__delta_internal_is_row_deleted", "__delta_internal_row_index"),  # with deletion vectors
    ("_file_name_", "_row_id_"),  # in a MERGE
)
_UNUSUAL = frozenset(" ,;{}()\n\t=")
_MAPPING = {
    "delta.columnMapping.mode": "name",
    "delta.minReaderVersion": "2",
    "delta.minWriterVersion": "5",
}
"""With these properties, the names of columns in Delta Lake's files are not those of the table.

Delta Lake refuses the characters in `_UNUSUAL` in a table without them.
"""


class _MergeSink(ABC):
    """A `Sink` in the table named `table` in SQL. Each ``MERGE`` also records its micro-batch."""

    PROVIDER: ClassVar[str]

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._spark = spark
        self._table = table
        self.target = table

    def prepare(self, layout: Layout) -> Layout:
        """See `Sink.prepare`."""
        new = layout.marked()
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self._table} ({self._declared(new.stored)}) "
            f"USING {self.PROVIDER} TBLPROPERTIES ({_listed(self._needed(new))})"
        )
        return as_in_target(
            self.target, layout, self.rows(self._spark).schema, self._properties().get(MARKER)
        )

    def add_columns(self, layout: Layout) -> None:
        """See `Sink.add_columns`."""
        told = self._properties()
        needed = {name: value for name, value in self._needed(layout).items() if name not in told}
        if needed:
            self._spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ({_listed(needed)})")
        if lacking := new_fields(self.rows(self._spark).schema, layout.stored):
            columns = ", ".join(map(self._added, lacking))
            self._spark.sql(f"ALTER TABLE {self._table} ADD COLUMNS ({columns})")

    def rows(self, spark: SparkSession) -> DataFrame:
        """See `Sink.rows`."""
        return spark.table(self._table)

    def append(self, batch: MicroBatch, rows: DataFrame) -> None:
        """See `Sink.append`."""
        rows = rows.localCheckpoint()  # before the session's settings name the micro-batch
        self._check(rows)
        there = self.rows(rows.sparkSession)
        columns = fitted(rows, there.schema)
        whole = rows.select(*(value.alias(name) for name, value in columns.items()))
        self._record(rows.sparkSession, batch, whole.writeTo(self._table).append)

    def commit(self, batch: MicroBatch, layout: Layout, updates: DataFrame) -> None:
        """See `Sink.commit`."""
        # Spark evaluates the source of a merge twice, and some versions cannot plan a source that
        # reads the target.
        rows = updates.localCheckpoint()
        self._check(rows)
        spark = rows.sparkSession
        if rows.isEmpty():  # a merge without rows might not commit
            self._record(spark, batch, self.rows(spark).limit(0).writeTo(self._table).append)
            return
        rows.createOrReplaceTempView(_VIEW)
        self._record(spark, batch, lambda: spark.sql(self._merge(layout)))
        spark.catalog.dropTempView(_VIEW)

    def _check(self, rows: DataFrame) -> None:  # noqa: B027 - Iceberg can have all rows
        """Raise SchemaError for rows that the table cannot have."""

    def _properties(self) -> dict[str, str]:
        return dict(self._spark.sql(f"SHOW TBLPROPERTIES {self._table}").collect())

    def _needed(self, layout: Layout) -> dict[str, str]:
        """Return the properties that the table must have."""
        return {MARKER: layout.marker}

    def _merge(self, layout: Layout) -> str:
        merge = Merge(layout)
        updates = ", ".join(f"t.{quoted(name)} = {it}" for name, it in merge.updates.items())
        columns = ", ".join(map(quoted, merge.inserts))
        return (
            f"MERGE INTO {self._table} t USING {_VIEW} s ON {merge.condition} "  # noqa: S608 - quoted
            f"WHEN MATCHED AND ({merge.is_gone}) THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {updates} "
            f"WHEN NOT MATCHED AND ({merge.is_new}) THEN "
            f"INSERT ({columns}) VALUES ({', '.join(merge.inserts.values())})"
        )

    def _added(self, field: Difference) -> str:
        """Return a new column or field as SQL."""
        assert field.new is not None  # noqa: S101 - the field is new
        declared = self._declared(StructType().add("x", field.new))
        return f"{'.'.join(map(quoted, field.path))} {declared.removeprefix('x ')}"

    def _declared(self, schema: StructType) -> str:
        """Return the columns as SQL; all names are quoted, including those inside types."""
        declared: str = self._spark.createDataFrame([], schema)._jdf.schema().toDDL()  # noqa: SLF001 - older PySpark has no other way
        return declared

    @abstractmethod
    def last(self, query: str) -> MicroBatch | None:
        """See `Sink.last`."""

    @abstractmethod
    def _record(self, spark: SparkSession, batch: MicroBatch, write: Callable[[], object]) -> None:
        """Call `write`, whose commit then also records the micro-batch."""


class IcebergSink(_MergeSink):
    """A `Sink` in an Iceberg table. A snapshot's summary contains the micro-batch's number."""

    PROVIDER = "iceberg"

    def __init__(self, spark: SparkSession, table: str) -> None:
        catalog = table.partition(".")[0].strip("`")
        if "iceberg" not in (spark.conf.get(f"spark.sql.catalog.{catalog}", None) or ""):
            remedy = (
                "give the name of a table in an Iceberg catalog of the session, as in "
                "'lake.shop.orders'; the catalog is set by spark.sql.catalog.lake"
            )
            raise ConfigurationError("target", table, remedy)
        super().__init__(spark, table)

    def prepare(self, layout: Layout) -> Layout:
        """See `Sink.prepare`. The namespace is created too."""
        refuse_columns(self.target, layout.schema, _IN_ICEBERG, "Iceberg")
        namespace = self._table.rpartition(".")[0]
        if "." in namespace:
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        return super().prepare(layout)

    def rows(self, spark: SparkSession) -> DataFrame:
        """See `Sink.rows`."""
        spark.sql(f"REFRESH TABLE {self._table}")  # each session caches tables
        return super().rows(spark)

    def last(self, query: str) -> MicroBatch | None:
        """See `Sink.last`. A snapshot that was rolled back does not count."""
        self._spark.sql(f"REFRESH TABLE {self._table}")
        history = self._spark.table(f"{self._table}.history").where("is_current_ancestor")
        snapshots = self._spark.table(f"{self._table}.snapshots").join(history, "snapshot_id")
        written = snapshots.where(snapshots["summary"][_QUERY] == query)
        noted = (f"CAST(summary['{name}'] AS BIGINT)" for name in (_BATCH, _PLAN))
        found = written.selectExpr(*noted).collect()
        return MicroBatch(query, *max(found)) if found else None

    def _record(self, spark: SparkSession, batch: MicroBatch, write: Callable[[], object]) -> None:
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way
        properties = jvm.java.util.HashMap()
        properties.put(_QUERY, batch.query)
        properties.put(_BATCH, str(batch.number))
        properties.put(_PLAN, str(batch.plan))
        jvm.org.apache.iceberg.spark.CommitMetadata.withCommitProperties(
            properties, _Callable(write), jvm.java.lang.Class.forName("java.lang.RuntimeException")
        )


class DeltaSparkSink(_MergeSink):
    """A `Sink` in a Delta table at a path, written by Delta Lake's library for Spark."""

    PROVIDER = "delta"

    def __init__(self, spark: SparkSession, path: str) -> None:
        super().__init__(spark, f"delta.{quoted(path)}")
        self.target = path
        self._never_empty: list[str] = []

    def prepare(self, layout: Layout) -> Layout:
        """See `Sink.prepare`."""
        refuse_columns(self.target, layout.schema, _IN_DELTA, "Delta Lake")
        found = super().prepare(layout)
        refuse_append_only(self.target, self._properties())
        [detail] = self._spark.sql(f"DESCRIBE DETAIL {self._table}").collect()
        self._never_empty = [
            field.name
            for field in found.stored
            if field.name in detail["partitionColumns"]
            and isinstance(field.dataType, StringType | BinaryType)
        ]
        return found

    def _check(self, rows: DataFrame) -> None:
        """Raise SchemaError for empty values by which the table would be partitioned."""
        for name in self._never_empty:
            if not rows.where(sf.length(column(name)) == 0).isEmpty():
                raise empty_in_partition(name)

    def _needed(self, layout: Layout) -> dict[str, str]:
        needed = super()._needed(layout)
        return {**needed, **_MAPPING} if _has_unusual_names(layout.stored) else needed

    def last(self, query: str) -> MicroBatch | None:
        """See `Sink.last`. The micro-batch is recorded in the table's transactions."""
        jvm: Any = self._spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way
        log = jvm.org.apache.spark.sql.delta.DeltaLog
        found = log.forTableWithSnapshot(self._spark._jsparkSession, self.target)  # noqa: SLF001
        last = found.productElement(1).transactions().get(application(query))
        return of_version(query, int(last.get()) if last.isDefined() else None)

    def _record(self, spark: SparkSession, batch: MicroBatch, write: Callable[[], object]) -> None:
        values = {"AppId": application(batch.query), "Version": str(version_of(batch))}
        settings = {f"{_TRANSACTION}{name}": value for name, value in values.items()}
        for name, value in settings.items():
            spark.conf.set(name, value)  # each micro-batch has its own session
        try:
            write()
        finally:
            for name in settings:
                spark.conf.unset(name)


def _listed(properties: dict[str, str]) -> str:
    """Return properties in SQL; no name or value contains a quote."""
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())


def _has_unusual_names(kind: DataType) -> bool:
    """Whether a column or field in the type has a name that Parquet files cannot have."""
    match kind:
        case StructType(fields=fields):
            return any(
                not _UNUSUAL.isdisjoint(field.name) or _has_unusual_names(field.dataType)
                for field in fields
            )
        case ArrayType(elementType=element):
            return _has_unusual_names(element)
        case MapType(keyType=key, valueType=value):
            return _has_unusual_names(key) or _has_unusual_names(value)
        case _:
            return False


class _Callable:
    """A Python function as Java's ``Callable``."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def call(self) -> None:
        self._call()

    class Java:
        implements: ClassVar = ["java.util.concurrent.Callable"]
