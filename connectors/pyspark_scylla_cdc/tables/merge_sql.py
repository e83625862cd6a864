"""A copy in a table that Spark merges into itself: Iceberg, or Delta Lake's own library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from pyspark_scylla_cdc.tables.sink import APPLICATION, GONE, Layout, merged, quoted, same_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VIEW = "__scylla_cdc_merged"
_BATCH = f"{APPLICATION}.batch"


class MergeSink:
    """A `Sink` in a table of the catalog, by ``MERGE INTO``; rows and micro-batch are one commit.

    `table` is its name as SQL, such as ``lake.shop.orders`` or ``delta.`/data/orders```.
    """

    def __init__(self, spark: SparkSession, table: str, provider: str) -> None:
        self._spark = spark
        self._table = table
        self._provider = provider

    def prepare(self, layout: Layout) -> None:
        """See `Sink.prepare`."""
        try:
            there = {name.lower() for name in self._spark.table(self._table).columns}
        except AnalysisException:
            empty = self._spark.createDataFrame([], layout.schema)
            empty.writeTo(self._table).using(self._provider).create()
            return
        if missing := [field for field in layout.schema if field.name.lower() not in there]:
            columns = (f"{quoted(f.name)} {f.dataType.simpleString()}" for f in missing)
            self._spark.sql(f"ALTER TABLE {self._table} ADD COLUMNS ({', '.join(columns)})")

    def has(self, batch: int) -> bool:
        """See `Sink.has`. Delta Lake skips a merge that it has; it does not tell before."""
        if self._provider != "iceberg":
            return False
        found = self._spark.sql(
            f"SELECT max(CAST(summary['{_BATCH}'] AS INT)) FROM {self._table}.snapshots"  # noqa: S608 - the user's name
        ).first()
        last = None if found is None else found[0]
        return last is not None and batch <= last

    def rows(self, spark: SparkSession) -> DataFrame:
        """See `Sink.rows`."""
        return spark.table(self._table)

    def commit(self, batch: int, layout: Layout, before: DataFrame, after: DataFrame) -> None:
        """See `Sink.commit`."""
        # Computed once: a merge reads its source twice, and Spark 4.1 cannot plan a view that reads
        # the table that is merged into.
        rows = merged(layout, before, after).localCheckpoint()
        spark = rows.sparkSession
        rows.createOrReplaceTempView(_VIEW)
        columns = [quoted(field.name) for field in layout.schema]
        updates = ", ".join(f"t.{column} = s.{column}" for column in columns)
        cells = ", ".join(f"s.{column}" for column in columns)
        for name, value in self._noted(batch).items():
            spark.conf.set(name, value)
        try:
            spark.sql(
                f"MERGE INTO {self._table} t USING {_VIEW} s ON {same_row(layout)} "  # noqa: S608 - quoted
                f"WHEN MATCHED AND s.{GONE} THEN DELETE "
                f"WHEN MATCHED THEN UPDATE SET {updates} "
                f"WHEN NOT MATCHED AND NOT s.{GONE} THEN "
                f"INSERT ({', '.join(columns)}) VALUES ({cells})"
            )
        finally:
            for name in self._noted(batch):
                spark.conf.unset(name)
            spark.catalog.dropTempView(_VIEW)

    def _noted(self, batch: int) -> Mapping[str, str]:
        """Return the settings with which a commit records the micro-batch."""
        if self._provider == "iceberg":
            return {f"spark.sql.iceberg.snapshot-property.{_BATCH}": str(batch)}
        return {
            "spark.databricks.delta.write.txnAppId": APPLICATION,
            "spark.databricks.delta.write.txnVersion": str(batch),
        }
