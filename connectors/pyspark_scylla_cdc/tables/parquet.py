"""A copy in Parquet files: a directory for each micro-batch, of which the last two are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_scylla_cdc.tables.sink import Layout, MicroBatch, missing, quoted, same_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEPT = 2
_WRITER = "_query-"
_DROPPED = "__dropped"


class ParquetSink:
    """A `Sink` of versions: the directory ``12`` contains the whole table after micro-batch 12.

    A version is complete when Spark has written the file ``_SUCCESS`` into it. The previous version
    is kept for readers that still use it. The name of an empty file contains the id of the query
    that writes the versions.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.target = path.rstrip("/")
        self._layout: Layout | None = None

    def prepare(self, layout: Layout) -> None:
        """See `Sink.prepare`; columns that an older version lacks are read as null."""
        if versions := self._versions():
            missing(layout, self._spark.read.parquet(f"{self.target}/{max(versions)}").columns)
        self._layout = layout

    def last(self, query: str) -> int | None:
        """See `Sink.last`."""
        is_writer = self._files.exists(self._file(f"{_WRITER}{query}"))
        return max(self._versions(), default=None) if is_writer else None

    def is_new(self, spark: SparkSession) -> bool:  # noqa: ARG002 - the interface
        """See `Sink.is_new`."""
        return not self._versions()

    def rows(self, spark: SparkSession) -> DataFrame:
        """See `Sink.rows`."""
        versions = self._versions()
        if not versions:
            assert self._layout is not None  # noqa: S101 - prepared first
            return spark.createDataFrame([], self._layout.schema)
        found = spark.read.parquet(f"{self.target}/{max(versions)}")
        for field in self._layout.schema if self._layout else ():
            if field.name not in found.columns:
                from pyspark.sql import functions as sf

                found = found.withColumn(field.name, sf.lit(None).cast(field.dataType))
        return found

    def commit(
        self, batch: MicroBatch, layout: Layout, before: DataFrame, after: DataFrame
    ) -> None:
        """See `Sink.commit`."""
        from pyspark.sql import functions as sf

        rows = self.rows(after.sparkSession).alias("t")
        replaced = before.select(*map(quoted, layout.key)).alias("s")
        untouched = rows.join(replaced, sf.expr(same_row(layout)), "left_anti")
        after = _with_dropped(after, rows, layout)
        whole = untouched.unionByName(after, allowMissingColumns=True)
        self._files.createNewFile(self._file(f"{_WRITER}{batch.query}"))
        whole.write.mode("overwrite").parquet(f"{self.target}/{batch.number}")
        for version in sorted(self._versions())[:-_KEPT]:
            self._files.delete(self._file(str(version)), True)

    def _versions(self) -> list[int]:
        """Return the versions that are complete."""
        if not self._files.exists(self._file()):
            return []
        names = [each.getPath().getName() for each in self._files.listStatus(self._file())]
        return [
            int(name)
            for name in names
            if name.isdigit() and self._files.exists(self._file(name, "_SUCCESS"))
        ]

    @property
    def _files(self) -> Any:
        """Return Hadoop's file system of the path, with Spark's settings."""
        configuration = self._spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - PySpark has no other way
        return self._file().getFileSystem(configuration)

    def _file(self, *names: str) -> Any:
        jvm: Any = self._spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way
        return jvm.org.apache.hadoop.fs.Path("/".join([self.target, *names]))


def _with_dropped(after: DataFrame, rows: DataFrame, layout: Layout) -> DataFrame:
    """Return the rows `after`, with the values from `rows` in columns that only the copy has."""
    from pyspark.sql import functions as sf

    dropped = [sf.col(quoted(name)) for name in rows.columns if name not in layout.schema.names]
    if not dropped:
        return after
    there = rows.select(*map(quoted, layout.key), sf.struct(*dropped).alias(_DROPPED)).alias("s")
    joined = after.alias("t").join(there, sf.expr(same_row(layout)), "left")
    return joined.select("t.*", f"s.{_DROPPED}.*")
