"""Row markers in a copy of existing rows: a SELECT shows neither their TTL nor their write time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cdc_reader import CdcReader, ConnectionConfig, CqlWriter, ReadConfig, Replicator
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.clock import ManualClock

SECOND = 1_000_000


class Tables:
    """Tables with a default TTL or without one, their copies, and a clock that a test advances."""

    def __init__(self, server: EmbeddedScylla, clock: ManualClock) -> None:
        self._server, self._clock = server, clock

    def create(self, columns: str, ttl: int) -> None:
        """Create the table and its empty copy."""
        for name, cdc in (("t", True), ("copy", False)):
            log = f"AND cdc = {{'enabled': {str(cdc).lower()}, 'preimage': true}}" if cdc else ""
            self.execute(
                f"CREATE TABLE ks.{name} {columns} WITH default_time_to_live = {ttl} {log}"
            )

    def execute(self, *statements: str) -> None:
        """Execute the statements."""
        for statement in statements:
            self._server.execute(statement)

    def copy(self) -> None:
        """Copy the existing rows."""
        read = ReadConfig(confidence_window="0s")
        writer = CqlWriter(ConnectionConfig(self._server.contact_point))
        with CdcReader(self._server.contact_point, "ks.t", config=read) as reader:
            replicator = Replicator(writer, {"ks.t": "ks.copy"}, clock=self._clock)
            replicator.apply_all(reader.snapshot().changes())
        writer.close()

    def after(self, seconds: int) -> tuple[list[int], list[int]]:
        """Return the keys of the table and of its copy after this time."""
        self._clock.advance(seconds * SECOND)
        return self._keys("t"), self._keys("copy")

    def _keys(self, name: str) -> list[int]:
        rows = self._server.execute(f"SELECT id FROM ks.{name}")
        return sorted(int.from_bytes(row[0] or b"", "big") for row in rows)


@pytest.fixture
def tables() -> Iterator[Tables]:
    """No tables yet."""
    clock = ManualClock(time.time_ns() // 1_000)
    with EmbeddedScylla(clock=clock) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        yield Tables(server, clock)


@pytest.mark.parametrize(
    ("columns", "insert"),
    [
        ("(id int PRIMARY KEY)", "(id) VALUES (1)"),
        ("(id int PRIMARY KEY, v int)", "(id) VALUES (1)"),
        ("(id int PRIMARY KEY, m map<int, int>)", "(id, m) VALUES (1, {1: 2})"),
        ("(id int PRIMARY KEY, l list<int>)", "(id, l) VALUES (1, [1])"),
        ("(id int PRIMARY KEY, v int, m map<int, int>)", "(id, v, m) VALUES (1, 2, {1: 2})"),
    ],
)
def test_what_has_no_known_ttl_gets_the_default_ttl(
    tables: Tables, columns: str, insert: str
) -> None:
    """A row that expires by the table's default TTL expires in the copy too."""
    tables.create(columns, ttl=100)
    tables.execute(f"INSERT INTO ks.t {insert}")
    assert tables.after(50) == ([1], [])
    tables.copy()
    assert tables.after(49) == ([1], [1])
    assert tables.after(2)[0] == []
    assert tables.after(50) == ([], [])


def test_without_a_default_ttl_rows_do_not_expire(tables: Tables) -> None:
    """Row markers, and elements of collections, of a table without a default TTL are permanent."""
    tables.create("(id int PRIMARY KEY, v int, m map<int, int>)", ttl=0)
    tables.execute(
        "INSERT INTO ks.t (id) VALUES (1)",
        "INSERT INTO ks.t (id, m) VALUES (2, {1: 2})",
        "INSERT INTO ks.t (id, v, m) VALUES (3, 1, {1: 2}) USING TTL 100",
    )
    tables.copy()
    assert tables.after(1_000) == ([1, 2], [1, 2, 3])


def test_a_row_marker_lives_as_long_as_the_longest_cell(tables: Tables) -> None:
    """A permanent row whose only cell expires is lost in the copy."""
    tables.create("(id int PRIMARY KEY, v int, w int)", ttl=0)
    tables.execute(
        "INSERT INTO ks.t (id) VALUES (1)",
        "UPDATE ks.t USING TTL 100 SET v = 1 WHERE id = 1",
        "INSERT INTO ks.t (id, w) VALUES (2, 1)",
        "UPDATE ks.t USING TTL 100 SET v = 1 WHERE id = 2",
    )
    tables.copy()
    assert tables.after(99) == ([1, 2], [1, 2])
    assert tables.after(2) == ([1, 2], [2])
