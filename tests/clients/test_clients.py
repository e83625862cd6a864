"""Tests that drivers in several languages, and cqlsh, work with the server: `make test-clients`.

Each client is a small program: `client HOST PORT DATACENTER KEYSPACE [join]`. It executes the
statements on its standard input, one per line, which create KEYSPACE and its tables. Then it

- writes a value of each type with a prepared statement, and reads the values from the table and its
  log;
- increments a counter, reads a log in pages, and inserts a row twice with IF NOT EXISTS;
- prints `done`, and with `join` waits for a minute and prints `added ADDRESS` for each node that
  the driver adds.

A client exits with an error if a result is wrong. `make test-clients ARGS=--scylla=HOST:PORT` runs
the clients on another server, where no node joins.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cassandra.cluster import Session
from cassandra.util import Date, Duration, SortedSet, Time

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.target import Scylla
from tests.clients import building
from tests.clients.building import Command

CLIENTS: dict[str, Callable[[], Command]] = {
    "gocql": lambda: building.go("go.mod"),
    "gocql of ScyllaDB": lambda: building.go("scylla.mod"),
    "Java driver": lambda: building.java("apache"),
    "Java driver of ScyllaDB": lambda: building.java("scylla"),
    "Rust driver": building.rust,
    "Node driver": building.node,
    "scylla-driver": building.python,
}
SHARD_AWARE = {"gocql of ScyllaDB", "Java driver of ScyllaDB", "Rust driver", "scylla-driver"}
SHARDS = 3
CQLSH = ("cqlsh==6.2.2", "scylla-cqlsh==6.0.40")
SHELL_SCRIPTS = Path(__file__).parent / "cqlsh"
DESCRIBES = (5, 2)
"""First version that supports DESCRIBE. Apache's cqlsh does not send it to ScyllaDB."""
SCHEMA = Path(__file__).parent / "schema.cql"
WRITTEN = {
    "pk": 1,
    "c_ascii": "abc",
    "c_bigint": 9007199254740993,
    "c_blob": b"\0\xff\x10",
    "c_boolean": True,
    "c_date": Date("2026-11-22"),
    "c_decimal": Decimal("12345678901234567890.123"),
    "c_double": 0.1,
    "c_duration": Duration(1, 2, 3),
    "c_float": 0.5,
    "c_inet": "192.0.2.1",
    "c_int": -7,
    "c_smallint": -300,
    "c_text": "grün",
    "c_time": Time("12:00:00.000000005"),
    "c_timestamp": dt.datetime(2026, 11, 22, 12, 34, 56, 789_000),  # noqa: DTZ001 - UTC
    "c_timeuuid": uuid.UUID("8f1a3c00-c7a2-11f1-9b0e-0242ac120002"),
    "c_tinyint": -5,
    "c_uuid": uuid.UUID("123e4567-e89b-42d3-a456-426614174000"),
    "c_varchar": "x",
    "c_varint": 123456789012345678901234567890,
    "c_list": [1, 2, 1],
    "c_set": SortedSet(["a", "b"]),
    "c_map": {"a": 1, "b": 2},
    "c_udt": ("Main", 7),
    "c_frozen": [3, 1],
    "c_frozen_udt": ("Main", 7),
    "c_tuple": (1, "one"),
}
"""The row that every client writes to the table `every`."""


@pytest.fixture
def server(scylla: Scylla, version: str) -> Iterator[Scylla]:
    """The server under test. An embedded server has two nodes, and emulates `version`."""
    if not isinstance(scylla.server, EmbeddedScylla):
        yield scylla
        return
    with (
        EmbeddedScylla(nodes=2, shards=SHARDS, version=version) as embedded,
        Scylla("embedded", embedded.host, embedded.port, server=embedded) as running,
    ):
        yield running


@pytest.fixture
def keyspace(server: Scylla) -> Iterator[str]:
    """A name for the client's keyspace, which is dropped after the test."""
    name = f"clients_{uuid.uuid4().hex[:12]}"
    yield name
    server.session.execute(f"DROP KEYSPACE IF EXISTS {name}")


def schema(session: Session, keyspace: str) -> str:
    """Return the statements that create a client's keyspace, which uses vnodes, and its tables."""
    properties = "replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    if "tablets" in session.cluster.metadata.keyspaces["system"].tables:
        properties += " AND tablets = {'enabled': false}"  # older versions reject CDC on tablets
    text = SCHEMA.read_text()
    return text.replace("{ks}", keyspace).replace("{properties}", properties)


def one_a_line(statements: str) -> str:
    """Return the statements without semicolons, one per line."""
    return "\n".join(" ".join(each.split()) for each in statements.split(";") if each.strip())


def check_written(session: Session, keyspace: str) -> None:
    """Check that the row that a client wrote is in the table and in its log."""
    (row,) = session.execute(f"SELECT * FROM {keyspace}.every")
    assert {name: plain(value) for name, value in row._asdict().items()} == WRITTEN
    select = f'SELECT pk, "cdc$operation" AS operation FROM {keyspace}.every_scylla_cdc_log'
    assert list(session.execute(select)) == [(1, 2)]


def plain(value: Any) -> Any:
    """Convert a UDT value to a tuple, and a map to a dict."""
    if isinstance(value, tuple):
        return tuple(value)
    return dict(value) if hasattr(value, "items") else value


def await_line(lines: Iterable[str], expected: str) -> None:
    """Read lines until `expected` is found, and fail if the process ends first."""
    assert any(line.strip() == expected for line in lines), f"never printed {expected!r}"


def shards_of(session: Session) -> set[int]:
    """Return the shards to which ScyllaDB's drivers are connected."""
    rows = session.execute("SELECT driver_name, shard_id FROM system.clients")
    return {row.shard_id for row in rows if "scylla" in (row.driver_name or "").lower()}


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_works(client: str, server: Scylla, keyspace: str) -> None:
    """The client connects, writes and reads all types, and is notified of a node that joins."""
    session = server.session
    datacenter = session.execute("SELECT data_center FROM system.local").one().data_center
    command = [*CLIENTS[client](), server.host, str(server.port), datacenter, keyspace]
    with tempfile.TemporaryFile("w+") as errors:
        try:
            with subprocess.Popen(
                [*command, "join"] if server.server else command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process:
                try:
                    follow(process, client, server, keyspace)
                finally:
                    process.kill()
        except AssertionError as failure:
            errors.seek(0)
            failure.add_note(errors.read())
            raise


def follow(process: subprocess.Popen[str], client: str, server: Scylla, keyspace: str) -> None:
    """Send the schema to the client. Check its row, its shards, and its notice of a new node."""
    session = server.session
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(one_a_line(schema(session, keyspace)))
    process.stdin.close()
    await_line(process.stdout, "done")
    check_written(session, keyspace)
    if not isinstance(embedded := server.server, EmbeddedScylla):
        assert process.wait() == 0
        return
    if client in SHARD_AWARE:
        assert shards_of(session) == set(range(SHARDS))
    embedded.join()
    await_line(process.stdout, f"added {embedded.cluster.nodes[-1].address}")


@pytest.fixture
def cqlsh(server: Scylla, keyspace: str, shell: str, tmp_path: Path) -> Callable[[str], str]:
    """A function that executes statements with cqlsh and returns its output."""
    program = building.environment(shell) / "cqlsh"

    def run(statements: str) -> str:
        file = tmp_path / "statements.cql"
        file.write_text(statements.replace("{ks}", keyspace))
        command: Command = [program, server.host, str(server.port), "--no-color", "-f", file]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shell", CQLSH)
def test_cqlsh_works(
    cqlsh: Callable[[str], str], shell: str, server: Scylla, keyspace: str
) -> None:
    """Each cqlsh writes and shows values of all types. ScyllaDB's cqlsh also shows schemas."""
    scripts = {path.stem: path.read_text() for path in SHELL_SCRIPTS.iterdir()}
    cqlsh(schema(server.session, keyspace) + scripts["write"])
    check_written(server.session, keyspace)
    shown = cqlsh(scripts["read"])
    for expected in ("123456789012345678901234567890", "(1, 'one')", "Tracing session:"):
        assert expected in shown, shown
    if shell.startswith("scylla") and version_of(server) >= DESCRIBES:
        described = cqlsh(scripts["describe"])
        for expected in (f"CREATE KEYSPACE {keyspace}", "CREATE TYPE", "CREATE TABLE"):
            assert expected in described, described


def version_of(server: Scylla) -> tuple[int, ...]:
    """Return the server's version as a tuple of numbers."""
    return tuple(int(part) for part in server.version.split("."))
