"""Rows and values that expire go from a copy, at the server's time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from attrs import frozen
from deltalake import DeltaTable

from cdc_reader._time import SystemClock
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.copies.keeping import keep_current
from cdc_reader.copies.properties import STATE
from cdc_reader.copies.table_copy import opened
from cdc_reader.cql.names import TableName
from cdc_reader.errors import SchemaError
from cdc_reader.reader import CdcReader
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.testing import EmbeddedScylla, ManualClock

Row = dict[str, Any]
SECOND = 1_000_000
ROUNDS, STATEMENTS = 12, 20
COLUMNS = {
    "static": "pk int, ck int, a int, b text, m map<int, int>, s int static, PRIMARY KEY (pk, ck)",
    "rows": "pk int, ck int, a int, b text, m map<int, int>, PRIMARY KEY (pk, ck)",
    "single": "pk text PRIMARY KEY, a int, b text, m map<int, int>",
}


class Silent:
    """A `Progress` that tells nobody."""

    def committed(self, position: Checkpoint, rows: int, changes: int) -> None:
        """Take note of nothing."""


@frozen
class Server:
    """A table whose server has a manual clock, and its copy."""

    scylla: EmbeddedScylla
    clock: ManualClock
    folder: Path

    def execute(self, *statements: str) -> None:
        """Execute statements, one after the other in time."""
        for statement in statements:
            self.clock.advance(1_000)
            self.scylla.execute(statement)

    def copied(self) -> list[Row]:
        """Bring the copy up to the present; return its rows."""
        self.clock.advance(1_000)
        with self._reader() as reader, opened(self.folder, TableName("ks", "t")) as copy:
            keep_current(reader, copy, "now", Silent())
        table = DeltaTable(self.folder)
        state = table.metadata().configuration[STATE]
        return in_order(pa.table(table.to_pyarrow_table()).drop([state]).to_pylist())

    def rows(self) -> list[Row]:
        """Return the rows of the table."""
        with self._reader() as reader:
            batches = [*reader.table.snapshot().batches()]
        return in_order(row for batch in batches for row in batch.to_pylist())

    def _reader(self) -> CdcReader:
        connection = ConnectionConfig(self.scylla.contact_point)
        config = ReadConfig(confidence_window="0s")
        return CdcReader(connection, "ks.t", config=config, clock=self.clock)


def in_order(rows: Any) -> list[Row]:
    """Return rows in an order of their own; empty maps are null."""
    plain = [{**row, "m": dict(row["m"]) if row["m"] else None} for row in rows]
    return sorted(plain, key=repr)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server without a table."""
    clock = ManualClock(SystemClock().now())
    with EmbeddedScylla(clock=clock, ring_delay_ms=0) as scylla:
        scylla.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
            " AND tablets = {'enabled': false}"
        )
        yield Server(scylla, clock, tmp_path / "copy")


def create(server: Server, columns: str, default_ttl: int = 0) -> None:
    """Create the table, after which CDC has begun."""
    cdc = "cdc = {'enabled': true, 'postimage': true}"
    text = f"CREATE TABLE ks.t ({columns}) WITH {cdc} AND default_time_to_live = {default_ttl}"
    server.scylla.execute(text)
    server.clock.advance(60 * SECOND)


@pytest.mark.parametrize("default_ttl", [0, 6])
@pytest.mark.parametrize("kind", COLUMNS)
def test_random_statements_with_ttls(server: Server, kind: str, default_ttl: int) -> None:
    """After each run, the copy equals the table."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    create(server, COLUMNS[kind], default_ttl)
    assert server.copied() == []
    for _ in range(ROUNDS):
        for text in statements(draw, kind):
            server.execute(text)
            server.clock.advance(draw.choice([0, 0, SECOND // 3]))
        check(server.copied(), server.rows())
        server.clock.advance(draw.randrange(4 * SECOND))
    for _ in range(2):  # the second run reads again what may have had elements
        server.clock.advance(30 * SECOND)
        server.copied()
    server.clock.advance(30 * SECOND)
    assert server.copied() == server.rows()


def check(copy: list[Row], table: list[Row]) -> None:
    """Check that only elements of maps remain in the copy longer than in the table."""
    rest = {repr(key_of(row)): row for row in table}
    for row in copy:
        there = rest.pop(repr(key_of(row)), {**row, "a": None, "b": None, "m": None})
        more = (row["m"] or {}).items() - (there["m"] or {}).items()
        assert {**row, "m": None} == {**there, "m": None}
        assert (row["m"] or {}).items() - more == {*(there["m"] or {}).items()}
    assert not rest


def key_of(row: Row) -> Row:
    """Return the key of a row."""
    return {name: row[name] for name in ("pk", "ck") if name in row}


def statements(draw: random.Random, kind: str) -> Iterator[str]:
    """Yield statements, most of which write something that expires."""
    for _ in range(STATEMENTS):
        ttl = draw.choice(["", " USING TTL 2", " USING TTL 5", " USING TTL 9"])
        key = {"pk": f"'p{draw.randrange(9)}'" if kind == "single" else str(draw.randrange(3))}
        if kind != "single":
            key["ck"] = str(draw.randrange(4))
        where = " AND ".join(f"{name} = {value}" for name, value in key.items())
        values = {"a": str(draw.randrange(9)), "b": f"'b{draw.randrange(9)}'"}
        values["m"] = f"{{{draw.randrange(3)}: {draw.randrange(9)}}}"
        some = {name: draw.choice([value, value, "null"]) for name, value in values.items()}
        some = dict(draw.sample([*some.items()], draw.randrange(4)))
        cells = {**key, **some}
        element = f"m[{draw.randrange(3)}] = {draw.randrange(9)}"
        sets = ", ".join(f"{name} = {value}" for name, value in some.items()) or element
        found = [
            f"INSERT INTO ks.t ({', '.join(cells)}) VALUES ({', '.join(cells.values())}){ttl}",
            f"UPDATE ks.t{ttl} SET {sets} WHERE {where}",
            f"UPDATE ks.t{ttl} SET {element} WHERE {where}",
        ]
        if draw.random() < 0.1:
            found = [f"DELETE FROM ks.t WHERE {where}", f"DELETE m FROM ks.t WHERE {where}"]
        if kind == "static" and draw.random() < 0.2:
            value = draw.choice(["null", "1", "2"])
            found = [f"UPDATE ks.t{ttl} SET s = {value} WHERE pk = {key['pk']}"]
        yield draw.choice(found)


def test_other_rows_of_a_partition_that_is_read_again(server: Server) -> None:
    """They expire too, although the server does not tell when."""
    create(server, COLUMNS["rows"])
    assert server.copied() == []
    server.execute(
        "UPDATE ks.t SET b = 'x' WHERE pk = 1 AND ck = 1",
        "UPDATE ks.t USING TTL 5 SET a = 1 WHERE pk = 1 AND ck = 1",
        "INSERT INTO ks.t (pk, ck) VALUES (1, 2) USING TTL 100",
        "UPDATE ks.t SET b = 'x' WHERE pk = 1 AND ck = 3",
        "UPDATE ks.t USING TTL 100 SET m[1] = 1 WHERE pk = 1 AND ck = 3",
    )
    assert server.copied() == server.rows()
    for seconds in (10, 100, 100):
        server.clock.advance(seconds * SECOND)
        assert server.copied() == server.rows()
    assert [(row["ck"], row["m"]) for row in server.rows()] == [(1, None), (3, None)]


def test_rows_that_outlive_the_default_ttl(server: Server) -> None:
    """A default TTL says nothing of rows that were written without one, or with a longer one."""
    create(server, COLUMNS["rows"])
    server.execute(
        "INSERT INTO ks.t (pk, ck) VALUES (1, 1)",
        "INSERT INTO ks.t (pk, ck, a) VALUES (1, 2, 1)",
        "UPDATE ks.t SET m[1] = 1 WHERE pk = 1 AND ck = 3",
        "ALTER TABLE ks.t WITH default_time_to_live = 60",
        "INSERT INTO ks.t (pk, ck) VALUES (1, 4) USING TTL 1000",
        "INSERT INTO ks.t (pk, ck, a) VALUES (1, 5, 1)",
    )
    assert server.copied() == server.rows()
    server.clock.advance(100 * SECOND)
    assert server.copied() == server.rows()
    assert len(server.rows()) == 4


def test_a_key_with_a_user_defined_type(server: Server) -> None:
    """Such partitions are not read again, and the copy goes on."""
    server.execute("CREATE TYPE ks.u (a int)")
    create(server, "pk frozen<u> PRIMARY KEY, a int, m map<int, int>")
    assert server.copied() == []
    server.execute(
        "INSERT INTO ks.t (pk, a) VALUES ({a: 1}, 1)",
        "UPDATE ks.t USING TTL 1 SET a = 2 WHERE pk = {a: 1}",
    )
    server.clock.advance(5 * SECOND)
    assert [row["a"] for row in server.copied()] == [2]


def test_a_copy_of_an_earlier_version(server: Server) -> None:
    """The error says what to do."""
    create(server, COLUMNS["rows"])
    assert server.copied() == []
    for file in (server.folder / "_delta_log").iterdir():
        file.write_text(file.read_text().replace(STATE, "scylla_cdc.inserted"))
    with pytest.raises(SchemaError, match="made by an earlier version"):
        server.copied()


def test_ranges_in_partitions_with_a_text_as_key(server: Server) -> None:
    """The copy's rows are found after a merge, which writes texts in another form."""
    create(server, "pk text, ck blob, a int, m map<int, int>, PRIMARY KEY (pk, ck)")
    assert server.copied() == []
    for number in range(3):
        server.execute(f"INSERT INTO ks.t (pk, ck, a) VALUES ('x', 0x0{number}, {number})")
        assert server.copied() == server.rows()
    server.execute("DELETE FROM ks.t WHERE pk = 'x' AND ck > 0x00")
    assert server.copied() == server.rows()
