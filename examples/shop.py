"""A shop whose orders change, for the other examples to follow.

The changes are pseudo-random, but the same in each run. They include deletes of a single order, of
a customer's later orders, and of all orders of a customer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cassandra.cluster import Cluster, Session
from pyspark.sql import DataFrame, SparkSession

from cdc_reader.testing import EmbeddedScylla

Row = dict[str, Any]

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
FORGET = "DELETE FROM shop.orders WHERE customer = %s"


class Shop:
    """The table ``shop.orders``, whose log contains complete rows."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._draw = random.Random(7)  # noqa: S311 - the same orders each time
        session.execute(KEYSPACE)
        session.execute(TABLE)

    def change(self, times: int) -> None:
        """Make this many random changes to orders."""
        for _ in range(times):
            self._session.execute(*self._any())

    def rows(self) -> list[Row]:
        """Return the orders, sorted by customer and number."""
        found = (row._asdict() for row in self._session.execute("SELECT * FROM shop.orders"))
        rows = ({**row, "items": dict(row["items"]) if row["items"] else None} for row in found)
        return by_key(rows)

    def _any(self) -> tuple[str, tuple[Any, ...]]:
        customer, number = key = self._draw.randrange(5), self._draw.randrange(8)
        statements: list[tuple[str, tuple[Any, ...]]] = [
            (INSERT, (*key, {"mug": number + 1})),
            (ADD, key),
            (SHIP, key),
            (MOVE, (f"Elm Street {number}", customer)),
            (CANCEL, key),
            (CANCEL_LATER, key),
            (FORGET, (customer,)),
        ]
        return self._draw.choices(statements, weights=[16, 16, 8, 4, 4, 2, 1])[0]


def by_key(rows: Iterable[Row]) -> list[Row]:
    """Return the rows sorted by key. The row of a customer without orders comes first."""
    return sorted(
        rows, key=lambda row: (row["customer"], -1 if row["number"] is None else row["number"])
    )


def follow(
    spark: SparkSession, hosts: str, update: Callable[[DataFrame, int], None], checkpoint: Path
) -> None:
    """Update a copy with all changes so far, one micro-batch after another."""
    changes = (
        spark.readStream.format("scylla_cdc")
        .option("hosts", hosts)
        .option("keyspace", "shop")
        .option("table", "orders")
        .option("format", "changes")
        .option("includeDelta", "true")
        .option("rangeDeletes", "emit")
        .option("maxPartitions", "2")
        .option("confidenceWindow", "0s")  # one clock and no writers: no need to wait
        .load()
    )
    writer = changes.writeStream.foreachBatch(update)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()


@contextmanager
def open_shop() -> Iterator[tuple[EmbeddedScylla, Shop]]:
    """Start a small ScyllaDB, whose new nodes join without delay, and open the shop in it."""
    with EmbeddedScylla(vnodes=4, ring_delay_ms=0) as server:
        cluster = Cluster([server.host], port=server.port, protocol_version=4)
        yield server, Shop(cluster.connect())
        cluster.shutdown()
