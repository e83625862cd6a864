"""A copy of a table in Parquet, brought up to date by a stream of its changes.

Run it with ``python examples/keep_current.py``: it starts a small ScyllaDB of its own, changes a
table in three rounds, lets Spark follow after each, and compares the copy with the table.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from cassandra.cluster import Cluster, Session
from pyspark.sql import DataFrame, SparkSession

from cdc_reader.testing import EmbeddedScylla
from pyspark_scylla_cdc import fold
from pyspark_scylla_cdc.local_session import local_session

ROUNDS = 3
KEYSPACE = (
    "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} "
    "AND tablets = {'enabled': false}"
)
TABLE = (
    "CREATE TABLE shop.orders (customer int, number int, address text static, status text, "
    "items map<text, int>, PRIMARY KEY (customer, number)) "
    "WITH cdc = {'enabled': true, 'postimage': true}"
)
INSERT = "INSERT INTO shop.orders (customer, number, status, items) VALUES (%s, %s, 'placed', %s)"
ADD = "UPDATE shop.orders SET items = items + {'kettle': 1} WHERE customer = %s AND number = %s"
SHIP = "UPDATE shop.orders SET status = 'shipped' WHERE customer = %s AND number = %s"
MOVE = "UPDATE shop.orders SET address = %s WHERE customer = %s"
CANCEL = "DELETE FROM shop.orders WHERE customer = %s AND number = %s"
CANCEL_LATER = "DELETE FROM shop.orders WHERE customer = %s AND number > %s"


def change(session: Session, draw: random.Random) -> None:
    """One of the things that happen to orders."""
    customer, number = key = draw.randrange(5), draw.randrange(8)
    statements: list[tuple[str, tuple[Any, ...]]] = [
        (INSERT, (*key, {"mug": number + 1})),
        (ADD, key),
        (SHIP, key),
        (MOVE, (f"Elm Street {number}", customer)),
        (CANCEL, key),
        (CANCEL_LATER, key),
    ]
    session.execute(*draw.choices(statements, weights=[8, 8, 4, 2, 2, 1])[0])


class Copy:
    """The copy: a folder for each micro-batch, the newest of which counts."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def update(self, changes: DataFrame, batch: int) -> None:
        """Apply a micro-batch; done again after a failure, it starts from the same state."""
        before = self._folder / str(batch - 1)
        onto = self._spark.read.parquet(str(before)) if before.exists() else None
        target = str(self._folder / str(batch))
        changes.persist()  # a fold looks at the changes more than once, and so would the source
        fold(changes, onto=onto).coalesce(1).write.mode("overwrite").parquet(target)
        changes.unpersist()

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the copy, by key."""
        newest = max(self._folder.iterdir(), key=lambda folder: int(folder.name))
        found = self._spark.read.parquet(str(newest)).collect()
        return sorted((row.asDict() for row in found), key=by_key)


def by_key(row: dict[str, Any]) -> tuple[int, int]:
    """Orders a row by its key; a customer without orders comes first."""
    return row["customer"], -1 if row["number"] is None else row["number"]


def table(session: Session) -> list[dict[str, Any]]:
    """The rows of the table, by key."""
    found = (row._asdict() for row in session.execute("SELECT * FROM shop.orders"))
    rows = [{**row, "items": dict(row["items"]) if row["items"] else None} for row in found]
    return sorted(rows, key=by_key)


def follow(spark: SparkSession, hosts: str, copy: Copy, checkpoint: Path) -> None:
    """Let the copy catch up with what was changed so far."""
    changes = (
        spark.readStream.format("scylla_cdc")
        .option("hosts", hosts)
        .option("keyspace", "shop")
        .option("table", "orders")
        .option("format", "changes")
        .option("includeDelta", "true")
        .option("rangeDeletes", "emit")
        .option("confidenceWindow", "0s")  # one clock, no one writes meanwhile: no need to wait
        .load()
    )
    writer = changes.writeStream.foreachBatch(copy.update)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()


def main() -> None:
    """Follow a table for some rounds and compare."""
    draw = random.Random(7)  # noqa: S311 - the same orders each time
    with tempfile.TemporaryDirectory() as name, EmbeddedScylla() as server:
        folder = Path(name)
        spark = local_session("keep-current", folder / "spark.log")
        cluster = Cluster([server.host], port=server.port, protocol_version=4)
        session = cluster.connect()
        session.execute(KEYSPACE)
        session.execute(TABLE)
        copy = Copy(spark, folder / "orders")
        for number in range(1, ROUNDS + 1):
            for _ in range(60):
                change(session, draw)
            follow(spark, server.contact_point, copy, folder / "checkpoint")
            verdict = "equals" if copy.rows() == table(session) else "DIFFERS FROM"
            print(f"round {number}: the copy, {len(copy.rows())} rows, {verdict} the table")
        spark.stop()
        cluster.shutdown()


if __name__ == "__main__":
    main()
