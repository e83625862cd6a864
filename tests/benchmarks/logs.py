"""Tables whose logs are replayed: inserts only, images of each change, and many partitions."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator

from tests.benchmarks.serving import KEYSPACE, Row, Served

FLAT, IMAGES, SCATTERED = "flat", "images", "scattered"
PAGE_ROWS = 5_000
_COLUMNS = "pk int, ck int, name text, amount bigint, ratio double, PRIMARY KEY (pk, ck)"
_INSERT = "INSERT INTO {table} (pk, ck, name, amount, ratio) VALUES (?, ?, ?, ?, ?)"
_UPDATE = "UPDATE {table} SET name = ?, amount = ? WHERE pk = ? AND ck = ?"


def log_of(table: str) -> str:
    """Return the name of the table's log."""
    return f"{table}_scylla_cdc_log"


def fill(served: Served, rows: int = PAGE_ROWS) -> None:
    """Create the tables `FLAT`, with `rows` inserts, and `IMAGES`, with updates.

    Each insert has one log row, and each update has three. The updates fill a page of their log.
    """
    _create(served, FLAT, "{'enabled': true}")
    served.execute(_INSERT.format(table=f"{KEYSPACE}.{FLAT}"), _inserts(rows))
    fill_images(served, IMAGES)


def fill_images(served: Served, table: str) -> None:
    """Create a table whose log has images, and write enough changes to fill a page."""
    _create(served, table, "{'enabled': true, 'preimage': 'full', 'postimage': true}")
    served.execute(_INSERT.format(table=f"{KEYSPACE}.{table}"), _inserts(PAGE_ROWS // 10))
    served.execute(_UPDATE.format(table=f"{KEYSPACE}.{table}"), _updates(PAGE_ROWS // 3))


def fill_scattered(served: Served) -> None:
    """Create a table whose partition key is a UUID, and insert a page of different keys."""
    _create(served, SCATTERED, "{'enabled': true}", _COLUMNS.replace("pk int", "pk uuid"))
    insert = _INSERT.format(table=f"{KEYSPACE}.{SCATTERED}")
    served.execute(insert, ((uuid.uuid4().bytes, *row[1:]) for row in _inserts(PAGE_ROWS)))


def _create(served: Served, table: str, cdc: str, columns: str = _COLUMNS) -> None:
    served.execute(f"CREATE TABLE {KEYSPACE}.{table} ({columns}) WITH cdc = {cdc}")


def _inserts(count: int) -> Iterator[Row]:
    for n in range(count):
        key = struct.pack(">i", n % 100), struct.pack(">i", n)
        yield (*key, b"name %d" % n, struct.pack(">q", n << 20), struct.pack(">d", n / 7))


def _updates(count: int) -> Iterator[Row]:
    for n in range(count):
        place = n % (PAGE_ROWS // 10)
        key = struct.pack(">i", place % 100), struct.pack(">i", place)
        yield b"new name %d" % n, struct.pack(">q", n << 30), *key
