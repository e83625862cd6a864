"""An embedded server with a table to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc_reader.testing import EmbeddedScylla


@contextmanager
def filled(rows: int) -> Iterator[EmbeddedScylla]:
    """Run a server whose table `ks.t` has `rows` rows: c = 0, 1, … and p = c % 10."""
    with EmbeddedScylla() as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        server.execute(
            "CREATE TABLE ks.t (p int, c int, PRIMARY KEY (p, c)) WITH cdc = {'enabled': true}"
        )
        for number in range(rows):
            server.execute(f"INSERT INTO ks.t (p, c) VALUES ({number % 10}, {number})")
        yield server
