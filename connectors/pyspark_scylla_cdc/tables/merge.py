"""A copy in a table into which Spark merges rows: Iceberg, or Delta with Delta Lake's library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
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

from cdc_reader._time import Micros
from cdc_reader.copies.columns import quoted
from cdc_reader.copies.delta import empty_in_partition, refuse_append_only
from cdc_reader.copies.merging import Merge, always_set, among
from cdc_reader.copies.properties import (
    APPLICATION,
    BUCKET,
    NO_BUCKETS,
    application,
    own_properties,
)
from cdc_reader.copies.row_state import expiry_in
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.tables.differences import Difference, fitted, new_fields
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
from pyspark_scylla_cdc.tables.touched import touched_by

_VIEW = "__scylla_cdc_merged"
_BATCH, _QUERY, _PLAN = (f"{APPLICATION}.{name}" for name in ("batch", "query", "plan"))
_NOTES = frozenset((_BATCH, _QUERY, _PLAN, BUCKETS))
_TRANSACTION = "spark.databricks.delta.write.txn"
_LISTED_AT_ONCE = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_MATERIALIZE = "spark.databricks.delta.merge.materializeSource"
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
_FEW, _FEW_BYTES = 10_000, 64 << 20
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
    ON_CREATION: ClassVar[Mapping[str, str]]
    """Properties of a new table. A merge does not rewrite the files that it changes."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        self.few = FewChanges(_FEW, _FEW_BYTES)
        self._spark = spark
        self._table = table
        self.target = table

    def prepare(self, layout: Layout) -> Layout:
        """See `Sink.prepare`."""
        new = layout.with_own_columns()
        properties = {**self._needed(new), **self.ON_CREATION}
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self._table} ({self._declared(new.stored)}) "
            f"USING {self.PROVIDER} PARTITIONED BY ({quoted(new.bucket or '')}) "
            f"TBLPROPERTIES ({_listed(properties)})"
        )
        there = self._present(self._spark).schema
        return as_in_target(self.target, layout, there, self._properties())

    def add_columns(self, layout: Layout) -> None:
        """See `Sink.add_columns`."""
        told = self._properties()
        needed = {name: value for name, value in self._needed(layout).items() if name not in told}
        if needed:
            self._spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ({_listed(needed)})")
        if lacking := new_fields(self._present(self._spark).schema, layout.stored):
            columns = ", ".join(map(self._added, lacking))
            self._spark.sql(f"ALTER TABLE {self._table} ADD COLUMNS ({columns})")

    def set_buckets(self, count: int, spark: SparkSession) -> None:
        """See `Sink.set_buckets`."""
        self._note(spark, {BUCKETS: count})

    def divide(self, layout: Layout, rows: DataFrame, replacing: Collection[int]) -> None:
        """See `Sink.divide`."""
        writer = self._whole(rows.localCheckpoint()).writeTo(self._table)
        is_replaced, notes = sf.expr(among(layout.columns, replacing)), {BUCKETS: layout.buckets}
        self._record(rows.sparkSession, notes, lambda: writer.overwrite(is_replaced))

    def rows(self, spark: SparkSession, buckets: Collection[int] | None = None) -> DataFrame:
        """See `Sink.rows`."""
        rows = self._present(spark)
        own = self._properties().get(BUCKET, NO_BUCKETS)
        if own == NO_BUCKETS:
            return rows
        found = rows if buckets is None else rows.where(column(own).isin(*buckets))
        return found.drop(column(own))

    def append(self, batch: MicroBatch, layout: Layout, rows: DataFrame) -> Micros | None:
        """See `Sink.append`."""
        rows = rows.localCheckpoint()  # before the session's settings name the micro-batch
        self._check(rows)
        append = self._whole(rows).writeTo(self._table).append
        self._record(rows.sparkSession, self._done(batch), append)
        [(first,)] = rows.agg(sf.min(column(layout.state))).collect()
        return expiry_in(first)

    def commit(
        self,
        batch: MicroBatch,
        layout: Layout,
        updates: DataFrame | pa.Table,
        spark: SparkSession,
    ) -> Micros | None:
        """See `Sink.commit`."""
        sets: Collection[str] = ()
        if are_few := isinstance(updates, pa.Table):
            rows = spark.createDataFrame(updates, layout.updates)
            sets = always_set(layout.columns, updates)
        else:
            # Spark evaluates the source of a merge twice, and some versions cannot plan a source
            # that reads the target.
            rows = updates.localCheckpoint()
        touched = touched_by(rows, layout, are_few=are_few)
        if touched.needed:
            keys = rows.where(column(layout.kind) == NEEDED).select(*map(column, layout.partition))
            raise RowsNeeded(keys, touched.needed if layout.bucket else None)
        self._check(rows)
        done = self._done(batch)
        if not touched.buckets:  # a merge without rows might not commit
            self._note(spark, done)
            return None
        rows.createOrReplaceTempView(_VIEW)
        merge = Merge(layout.columns, touched.buckets, sets)
        merged = self._merge(merge, touched.partitions)
        self._record(spark, done, lambda: spark.sql(merged))
        spark.catalog.dropTempView(_VIEW)
        return touched.expiry

    def files(self, spark: SparkSession) -> dict[int, Files]:
        """See `Sink.files`."""
        own = self._properties().get(BUCKET, NO_BUCKETS)
        files = self._files(spark, None if own == NO_BUCKETS else own)
        found = files.groupBy("place").agg(sf.count("*"), sf.sum("rows"), sf.sum("size"))
        return {row[0]: Files(*row[1:]) for row in found.collect()}

    def _note(self, spark: SparkSession, notes: Mapping[str, object]) -> None:
        """Commit the notes alone."""
        self._record(spark, notes, self._present(spark).limit(0).writeTo(self._table).append)

    def _present(self, spark: SparkSession) -> DataFrame:
        """Return the table as it is now."""
        return spark.table(self._table)

    def _whole(self, rows: DataFrame) -> DataFrame:
        """Return the rows with all columns of the table."""
        columns = fitted(rows, self._present(rows.sparkSession).schema)
        return rows.select(*(value.alias(name) for name, value in columns.items()))

    def _check(self, rows: DataFrame) -> None:  # noqa: B027 - Iceberg can have all rows
        """Raise SchemaError for rows that the table cannot have."""

    def _properties(self) -> dict[str, str]:
        return dict(self._spark.sql(f"SHOW TBLPROPERTIES {self._table}").collect())

    def _needed(self, layout: Layout) -> dict[str, str]:
        """Return the properties that the table must have."""
        return own_properties(layout.columns)

    def _merge(self, merge: Merge, partitions: str | None) -> str:
        condition = " AND ".join(filter(None, (partitions, merge.condition)))
        updates = ", ".join(f"t.{quoted(name)} = {it}" for name, it in merge.updates.items())
        columns = ", ".join(map(quoted, merge.inserts))
        return (
            f"MERGE INTO {self._table} t USING {_VIEW} s ON {condition} "  # noqa: S608 - quoted
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
    def buckets(self) -> int:
        """See `Sink.buckets`."""

    @abstractmethod
    def compact(self, layout: Layout, buckets: Sequence[int]) -> None:
        """See `Sink.compact`."""

    @abstractmethod
    def clean(self, spark: SparkSession) -> None:
        """See `Sink.clean`."""

    @abstractmethod
    def _files(self, spark: SparkSession, bucket: str | None) -> DataFrame:
        """Return the ``place`` of each file (its bucket, or 0), its ``rows`` and ``size``."""

    @abstractmethod
    def _done(self, batch: MicroBatch) -> Mapping[str, object]:
        """Return the notes that say that the table has the micro-batch."""

    @abstractmethod
    def _record(
        self, spark: SparkSession, notes: Mapping[str, object], write: Callable[[], object]
    ) -> None:
        """Call `write`, whose commit then also contains the notes."""


class IcebergSink(_MergeSink):
    """A `Sink` in an Iceberg table. A snapshot's summary contains the micro-batch's number."""

    PROVIDER = "iceberg"
    ON_CREATION: ClassVar = {
        "format-version": "3",  # a merge replaces the deletion vectors of earlier ones
        "read.split.open-file-cost": str(1 << 20),  # files of a bucket are small
        "write.delete.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.metadata.delete-after-commit.enabled": "true",
    }

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

    def last(self, query: str) -> MicroBatch | None:
        """See `Sink.last`. A snapshot that was rolled back does not count."""
        notes = self._notes()
        if notes.get(_QUERY) != query:
            return None
        return MicroBatch(query, int(notes[_BATCH]), int(notes[_PLAN]))

    def buckets(self) -> int:
        """See `Sink.buckets`."""
        return int(self._notes().get(BUCKETS, 1))

    def _present(self, spark: SparkSession) -> DataFrame:
        spark.sql(f"REFRESH TABLE {self._table}")  # each session caches tables
        return super()._present(spark)

    def _notes(self) -> dict[str, str]:
        """Return the notes in the last snapshot that has any; it repeats all earlier ones."""
        jvm: Any = self._spark.sparkContext._jvm  # noqa: SLF001 - a query would take longer
        session = self._spark._jsparkSession  # noqa: SLF001
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, self._table)
        table.refresh()  # catalogs cache tables
        snapshot = table.currentSnapshot()
        while snapshot is not None:
            summary = snapshot.summary()
            if summary.containsKey(_QUERY) or summary.containsKey(BUCKETS):
                return {name: summary[name] for name in _NOTES if summary.containsKey(name)}
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)
        return {}

    def compact(self, layout: Layout, buckets: Sequence[int]) -> None:
        """See `Sink.compact`."""
        options = "map('min-input-files', '2', 'delete-file-threshold', '1')"
        where = _text(among(layout.columns, buckets))
        self._call("rewrite_data_files", where=where, options=options)

    def clean(self, spark: SparkSession) -> None:  # noqa: ARG002 - see below
        """See `Sink.clean`. The last snapshot then has the notes, whoever wrote the one before."""
        # The procedure deletes the files of the snapshots that its own session knows: the note is
        # written in that session too, which refreshes the table there.
        self._note(self._spark, {})
        self._call("expire_snapshots")

    def _files(self, spark: SparkSession, bucket: str | None) -> DataFrame:
        spark.sql(f"REFRESH TABLE {self._table}")
        files = spark.table(f"{self._table}.files")
        counted = files["record_count"]  # of rows, or in a file of deletes, of deleted rows
        # A file with many deletion vectors is listed once for each.
        size = sf.coalesce(files["content_size_in_bytes"], files["file_size_in_bytes"])
        return files.select(
            (sf.lit(0) if bucket is None else files["partition"][bucket]).alias("place"),
            sf.when(files["content"] == 0, counted).otherwise(-counted).alias("rows"),
            size.alias("size"),
        )

    def _call(self, procedure: str, **arguments: str) -> None:
        """Call one of Iceberg's procedures for the table."""
        catalog, _, table = self._table.partition(".")
        given = {"table": _text(table), **arguments}
        listed = ", ".join(f"{name} => {value}" for name, value in given.items())
        self._spark.sql(f"CALL {catalog}.system.{procedure}({listed})")

    def _done(self, batch: MicroBatch) -> Mapping[str, object]:
        return {_QUERY: batch.query, _BATCH: batch.number, _PLAN: batch.plan}

    def _record(
        self, spark: SparkSession, notes: Mapping[str, object], write: Callable[[], object]
    ) -> None:
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way
        properties = jvm.java.util.HashMap()
        for name, value in {**self._notes(), **notes}.items():
            properties.put(name, str(value))
        jvm.org.apache.iceberg.spark.CommitMetadata.withCommitProperties(
            properties, _Callable(write), jvm.java.lang.Class.forName("java.lang.RuntimeException")
        )


class DeltaSparkSink(_MergeSink):
    """A `Sink` in a Delta table at a path, written by Delta Lake's library for Spark."""

    PROVIDER = "delta"
    ON_CREATION: ClassVar = {"delta.enableDeletionVectors": "true"}

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
        return of_version(query, self._transaction(application(query)))

    def buckets(self) -> int:
        """See `Sink.buckets`."""
        return self._transaction(BUCKETS) or 1

    def compact(self, layout: Layout, buckets: Sequence[int]) -> None:
        """See `Sink.compact`."""
        self._spark.sql(f"OPTIMIZE {self._table} WHERE {among(layout.columns, buckets)}")

    def clean(self, spark: SparkSession) -> None:
        """See `Sink.clean`. Without `_LISTED_AT_ONCE`, Delta Lake starts 10,000 tasks."""
        with configured(spark, {_LISTED_AT_ONCE: str(self.buckets())}):
            spark.sql(f"VACUUM {self._table}")

    def _files(self, spark: SparkSession, bucket: str | None) -> DataFrame:
        files = DataFrame(self._snapshot().allFiles().toDF(), spark)
        counted = sf.get_json_object(files["stats"], "$.numRecords").cast("bigint")
        rows = sf.coalesce(counted, sf.lit(1))
        deleted = sf.coalesce(files["deletionVector"]["cardinality"], sf.lit(0))
        # The name of the column may be another one there: the bucket is the only partition column.
        value = sf.map_values(files["partitionValues"])[0].cast("int")
        return files.select(
            (sf.lit(0) if bucket is None else value).alias("place"),
            (rows - deleted).alias("rows"),
            files["size"].alias("size"),
        )

    def _transaction(self, name: str) -> int | None:
        last = self._snapshot().transactions().get(name)
        return int(last.get()) if last.isDefined() else None

    def _snapshot(self) -> Any:
        """Return the last version of the table, as Delta Lake's library knows it."""
        jvm: Any = self._spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way
        log = jvm.org.apache.spark.sql.delta.DeltaLog
        session = self._spark._jsparkSession  # noqa: SLF001 - PySpark has no other way
        return log.forTableWithSnapshot(session, self.target).productElement(1)

    def _done(self, batch: MicroBatch) -> Mapping[str, object]:
        return {application(batch.query): version_of(batch)}

    def _record(
        self, spark: SparkSession, notes: Mapping[str, object], write: Callable[[], object]
    ) -> None:
        [(name, version)] = notes.items()
        settings = {
            f"{_TRANSACTION}AppId": name,
            f"{_TRANSACTION}Version": str(version),
            _MATERIALIZE: "none",  # the source of a merge is a checkpoint already
        }
        with configured(spark, settings):
            write()


def _listed(properties: dict[str, str]) -> str:
    """Return properties in SQL; no name or value contains a quote."""
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())


def _text(value: str) -> str:
    """Return a text as a literal of SQL."""
    quoted_text = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted_text}'"


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
