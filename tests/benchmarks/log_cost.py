"""Prints what CDC adds to a write: rows and bytes of the log, for each choice of images.

``python -m tests.benchmarks.log_cost`` writes to an embedded server. With ``--scylla HOST:PORT``,
it writes to a real server, in a keyspace that is dropped at the end. The bytes are the size of the
non-null values in the encoding of the native protocol. A node stores the same number of bytes
before compression.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attrs import frozen

from cdc_reader.cluster import Connection, Query
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.decoding.buffer import Buffer
from cdc_reader.testing import EmbeddedScylla

KEYSPACE = "log_cost"
NOTE = "n" * 80
KEY = "customer = 7 AND number = 1"
CDC = {
    "neither": "",
    "preimage `true`": "'preimage': true",
    "preimage `full`": "'preimage': 'full'",
    "postimage": "'postimage': true",
    "preimage `true`, postimage": "'preimage': true, 'postimage': true",
    "preimage `full`, postimage": "'preimage': 'full', 'postimage': true",
    "neither, delta `keys`": "'delta': 'keys'",
}
"""The CDC options to compare, by their names in the printed table."""
COLUMNS = "customer bigint, number int, status text, amount bigint, note text"


@frozen
class Statement:
    """A write, and the size of the values that it writes, keys included, in bytes."""

    name: str
    cql: str
    size: int


_KEY = 8 + 4
STATEMENTS = (
    Statement(
        "`INSERT` of a new row",
        "INSERT INTO {} (customer, number, status, amount, note) "
        f"VALUES (7, 1, 'placed', 995, '{NOTE}')",
        _KEY + len("placed") + 8 + len(NOTE),
    ),
    Statement(
        "`UPDATE` of one column",
        f"UPDATE {{}} SET status = 'paid' WHERE {KEY}",
        _KEY + len("paid"),
    ),
    Statement("`DELETE` of the row", f"DELETE FROM {{}} WHERE {KEY}", _KEY),
)


@frozen
class Size:
    """The number of rows in a log, and the bytes of their values."""

    rows: int
    bytes: int

    def __sub__(self, other: Size) -> Size:
        return Size(self.rows - other.rows, self.bytes - other.bytes)

    def __str__(self) -> str:
        return f"{self.rows}, {self.bytes} B"


def execute(connection: Connection, cql: str) -> None:
    """Execute a statement."""
    connection.execute(lambda: cql, cql)


def size_of(connection: Connection, log: str) -> Size:
    """Return the size of the whole log."""
    rows = held = 0
    for page in connection.pages(Query(f"SELECT * FROM {log}")):
        buffer = Buffer(page.body, page.metadata.rows_offset)
        count = buffer.count("rows")
        rows += count
        held += sum(len(buffer.value() or b"") for _ in range(count * len(page.columns)))
    return Size(rows, held)


def costs(connection: Connection, options: str, table: str) -> Iterator[Size]:
    """Yield what each statement adds to the log of a table with these CDC options."""
    cdc = ", ".join(filter(None, ("'enabled': true", options)))
    columns = f"{COLUMNS}, PRIMARY KEY (customer, number)"
    execute(connection, f"CREATE TABLE {table} ({columns}) WITH cdc = {{{cdc}}}")
    before = Size(0, 0)
    for statement in STATEMENTS:
        execute(connection, statement.cql.format(table))
        now = size_of(connection, f"{table}_scylla_cdc_log")
        yield now - before
        before = now


def table(connection: Connection) -> str:
    """Return the costs as a Markdown table."""
    rows: list[Sequence[object]] = [
        ("images", *(f"{s.name} ({s.size} B)" for s in STATEMENTS)),
        ("---",) * (1 + len(STATEMENTS)),
    ]
    for number, (name, options) in enumerate(CDC.items()):
        rows.append((name, *costs(connection, options, f"{KEYSPACE}.t{number}")))
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)


@contextmanager
def connected(hosts: str) -> Iterator[Connection]:
    """Yield a connection to a cluster with an empty keyspace, which is dropped at the end."""
    connection = Connection(ConnectionConfig(hosts, consistency="ONE"), ReadConfig())
    strategy = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    try:
        execute(connection, f"CREATE KEYSPACE {KEYSPACE} WITH replication = {strategy}")
        yield connection
        execute(connection, f"DROP KEYSPACE {KEYSPACE}")
    finally:
        connection.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Print what CDC adds to a write.")
    parser.add_argument("--scylla", metavar="HOST:PORT", help="write there, not to an embedded one")
    if given := parser.parse_args().scylla:
        with connected(given) as connection:
            print(table(connection), end="")
        return
    with EmbeddedScylla() as scylla, connected(f"{scylla.host}:{scylla.port}") as connection:
        print(table(connection), end="")


if __name__ == "__main__":
    main()
