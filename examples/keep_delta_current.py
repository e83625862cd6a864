"""A Delta table that mirrors a ScyllaDB table: each micro-batch of changes is merged once.

Run it with ``python examples/keep_delta_current.py``; it needs deltalake. It starts a small
embedded ScyllaDB and changes a table in two rounds, after each of which it compares the copy with
the table. Before the second round a node joins, so the log continues in new streams, and the query
is restarted. At the end a micro-batch is repeated, as after a crash.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from shop import Row, Shop, by_key, follow, open_shop

from pyspark_scylla_cdc import fold
from pyspark_scylla_cdc.local_session import local_session

KEY = ["customer", "number"]
SAME_ROW = "t.customer = s.customer AND t.number IS NOT DISTINCT FROM s.number"
"""The merge condition; a customer with an address but no orders is a row without a number."""
APP = "orders"
"""The application id under which the Delta table records micro-batches in its log."""
COLUMNS = "customer int, number int, address string, status string, items map<string, int>"


class Copy:
    """The copy: a Delta table that records the last micro-batch merged into it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        empty = spark.createDataFrame([], COLUMNS).toArrow()
        self.table = DeltaTable.create(str(folder), schema=empty.schema, mode="ignore")

    def update(self, changes: DataFrame, batch: int) -> None:
        """Merge a micro-batch unless it was merged before; one commit writes its rows and number.

        A micro-batch without changes is also committed, so the numbers have no gaps.
        """
        done = self.table.transaction_version(APP)
        if done == batch:
            return
        if batch != (0 if done is None else done + 1):
            raise ValueError(f"micro-batch {batch} does not follow {done}: delete both, start over")
        changes.persist()  # fold reads the changes more than once
        self._commit(self._merged(changes).toArrow(), batch)
        changes.unpersist()

    def rows(self) -> list[Row]:
        """Return the rows of the copy, by key."""
        return by_key(self.table.to_pyarrow_table().to_pylist(maps_as_pydicts="strict"))

    def _merged(self, changes: DataFrame) -> DataFrame:
        """Return the current rows of the customers that changed, and the rows that were deleted."""
        there = self._spark.read.schema(COLUMNS).parquet(*self.table.file_uris())
        before = there.join(changes.select("customer").distinct(), "customer", "left_semi")
        after = fold(changes, onto=before)
        gone = before.select(KEY).subtract(after.select(KEY))
        return after.withColumn("gone", sf.lit(False)).unionByName(
            gone.withColumn("gone", sf.lit(True)), allowMissingColumns=True
        )

    def _commit(self, rows: pa.Table, batch: int) -> None:
        done = CommitProperties(app_transactions=[Transaction(APP, batch)])
        if rows.num_rows == 0:  # a merge without rows would not commit
            nothing = rows.drop_columns("gone")
            write_deltalake(self.table, nothing, mode="append", commit_properties=done)
            return
        (
            self.table.merge(
                rows, SAME_ROW, source_alias="s", target_alias="t", commit_properties=done
            )
            .when_matched_delete("s.gone")
            .when_matched_update_all(except_cols=["gone"])
            .when_not_matched_insert_all("NOT s.gone", except_cols=["gone"])
            .execute()
        )


def forget_last(checkpoint: Path) -> None:
    """Change the checkpoint as if Spark had crashed between a merge and its commit."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)


def report(what: str, copy: Copy, shop: Shop) -> None:
    """Print one line about the copy."""
    rows = copy.rows()
    verdict = "equals" if rows == shop.rows() else "DIFFERS FROM"
    print(f"{what}: version {copy.table.version()}, {len(rows)} rows, {verdict} the table")


def main() -> None:
    """Follow a table for some rounds, and compare the copy with it."""
    with tempfile.TemporaryDirectory() as name, open_shop() as (server, shop):
        folder = Path(name)
        checkpoint = folder / "checkpoint"
        spark = local_session(
            "keep-delta-current", folder / "spark.log", **{"spark.sql.adaptive.enabled": "false"}
        )
        copy = Copy(spark, folder / "orders")
        for what in ("at first", "after a node joined"):
            if "node" in what:
                server.join(vnodes=4)
            shop.change(60)
            follow(spark, server.contact_point, copy.update, checkpoint)
            report(what, copy, shop)
        forget_last(checkpoint)
        follow(spark, server.contact_point, copy.update, checkpoint)
        report("after a crash", copy, shop)
        spark.stop()


if __name__ == "__main__":
    main()
