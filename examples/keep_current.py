"""A copy of a table in Parquet, maintained from a stream of the table's changes.

Run it with ``python examples/keep_current.py``. It starts a small embedded ScyllaDB and changes a
table in three rounds. After each round, Spark updates the copy, and the example compares the copy
with the table.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from shop import Row, by_key, follow, open_shop

from pyspark_scylla_cdc import fold
from pyspark_scylla_cdc.local_session import local_session

ROUNDS = 3


class Copy:
    """The copy, with a directory for each micro-batch. The newest directory is current."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def update(self, changes: DataFrame, batch: int) -> None:
        """Apply a micro-batch. If it is repeated after a failure, it starts from the same state."""
        before = self._folder / str(batch - 1)
        if batch > 0 and not before.exists():
            raise FileNotFoundError(f"{before} is missing: delete copy and checkpoint, start over")
        onto = self._spark.read.parquet(str(before)) if batch > 0 else None
        target = str(self._folder / str(batch))
        fold(changes, onto=onto).coalesce(1).write.mode("overwrite").parquet(target)

    def rows(self) -> list[Row]:
        """Return the rows of the copy, by key."""
        newest = max(self._folder.iterdir(), key=lambda folder: int(folder.name))
        return by_key(row.asDict() for row in self._spark.read.parquet(str(newest)).collect())


def main() -> None:
    """Follow a table for three rounds, and compare the copy with it after each round."""
    with tempfile.TemporaryDirectory() as name, open_shop() as (server, shop):
        folder = Path(name)
        spark = local_session("keep-current", folder / "spark.log")
        copy = Copy(spark, folder / "orders")
        for number in range(1, ROUNDS + 1):
            shop.change(60)
            follow(spark, server.contact_point, copy.update, folder / "checkpoint")
            verdict = "equals" if copy.rows() == shop.rows() else "DIFFERS FROM"
            print(f"round {number}: the copy, {len(copy.rows())} rows, {verdict} the table")
        spark.stop()


if __name__ == "__main__":
    main()
