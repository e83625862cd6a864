"""A copy in Parquet files: a directory for each micro-batch, of which the last two are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_scylla_cdc.tables.differences import fitted
from pyspark_scylla_cdc.tables.files import located
from pyspark_scylla_cdc.tables.sink import (
    Layout,
    MicroBatch,
    check_target,
    quoted,
    same_row,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEPT = 2
_WRITER = "_query-"
_DROPPED = "__dropped"


class ParquetSink:
    """A `Sink` of versions: the directory ``12`` contains the whole table after micro-batch 12.

    A version is complete when Spark has written the file ``_SUCCESS`` into it. The previous version
    is kept for readers that still use it. The name of an empty file in each version contains the id
    of the query that wrote the version, and the digest of the micro-batch's plan.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.target = path.rstrip("/")
        self._layout: Layout | None = None

    def prepare(self, layout: Layout) -> None:
        """See `Sink.prepare`. Columns and fields that an older version lacks are read as null."""
        if versions := self._versions():
            there = self._spark.read.parquet(f"{self.target}/{max(versions)}").schema
            check_target(self.target, layout, there)
        self._layout = layout

    def add_columns(self, layout: Layout) -> None:
        """See `Sink.add_columns`. The next version contains the new columns."""

    def last(self, query: str) -> MicroBatch | None:
        """See `Sink.last`."""
        number = max(self._versions(), default=None)
        if number is None:
            return None
        prefix = f"{_WRITER}{query}-"
        plans = [
            int(name.removeprefix(prefix))
            for name in self._names(str(number))
            if name.startswith(prefix)
        ]
        return MicroBatch(query, number, plans[0]) if plans else None

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
        return found.withColumns(fitted(found, self._layout.schema)) if self._layout else found

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
        version = str(batch.number)
        self._files.delete(self._file(version), True)  # a crash may have left a part of it
        self._files.create(
            self._file(version, f"{_WRITER}{batch.query}-{batch.plan}"), True
        ).close()
        whole.write.mode("append").parquet(f"{self.target}/{version}")
        for old in sorted(self._versions())[:-_KEPT]:
            self._files.delete(self._file(str(old)), True)

    def _versions(self) -> list[int]:
        """Return the numbers of the versions that are complete."""
        if not self._files.exists(self._file()):
            return []
        return [
            int(name)
            for name in self._names()
            if name.isdigit() and self._files.exists(self._file(name, "_SUCCESS"))
        ]

    def _names(self, *names: str) -> list[str]:
        """Return the names of the files in a directory."""
        return [each.getPath().getName() for each in self._files.listStatus(self._file(*names))]

    @property
    def _files(self) -> Any:
        return located(self._spark, self.target)[0]

    def _file(self, *names: str) -> Any:
        return located(self._spark, "/".join([self.target, *names]))[1]


def _with_dropped(after: DataFrame, rows: DataFrame, layout: Layout) -> DataFrame:
    """Return the rows `after`, with the values from `rows` in columns that only the copy has."""
    from pyspark.sql import functions as sf

    dropped = [sf.col(quoted(name)) for name in rows.columns if name not in layout.schema.names]
    if not dropped:
        return after
    there = rows.select(*map(quoted, layout.key), sf.struct(*dropped).alias(_DROPPED)).alias("s")
    joined = after.alias("t").join(there, sf.expr(same_row(layout)), "left")
    return joined.select("t.*", f"s.{_DROPPED}.*")
