"""`scylla-cdc import-position`: no change is missed after a switch from another library."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cdc_reader.checkpoints import CheckpointName, SqliteCheckpoints
from cdc_reader.cli.command import main
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session

ROWS = 60
LAYOUTS = {
    "rust": "(stream_id blob PRIMARY KEY, generation timestamp, time timestamp)",
    "go": "(generation timestamp, application_name text, table_name text, stream_id blob, "
    "last_timestamp timeuuid, current_generation timestamp, "
    "PRIMARY KEY ((generation, application_name, table_name, stream_id)))",
}
"""The tables of positions, as the libraries create them."""


class Switch:
    """A table with changes, and a table of positions that another library's reader stored."""

    def __init__(self, server: EmbeddedScylla, library: str) -> None:
        self.server = server
        self.library = library
        self.session = open_session(server.host, server.port)
        self.keyspace = f"ks_{uuid.uuid4().hex[:8]}"
        self.execute(
            "CREATE KEYSPACE {ks} WITH replication = "
            "{{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        self.execute("CREATE TABLE {ks}.t (p int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
        self.execute(f"CREATE TABLE {{ks}}.positions {LAYOUTS[library]}")
        for p in range(ROWS):
            self.execute(f"INSERT INTO {{ks}}.t (p) VALUES ({p})")
        log = self.execute('SELECT "cdc$stream_id", "cdc$time", p FROM {ks}.t_scylla_cdc_log')
        self.log = [(row[0], timeuuid.micros(row[1].bytes), row[1], row[2]) for row in log]
        self.generation = server.cluster.generations[-1].start_us // 1_000

    def execute(self, cql: str) -> list[Any]:
        return list(self.session.execute(cql.format(ks=self.keyspace)))

    def handle(self, draw: random.Random, *, every: bool) -> set[int]:
        """Store the positions of some or all streams. Return the keys of the unhandled changes."""
        self.start_generation()
        progress = {}
        for stream in sorted({stream for stream, *_ in self.log}):
            if every or draw.random() < 0.7:
                times = sorted((m, t) for s, m, t, _ in self.log if s == stream)
                progress[stream] = draw.choice(times)
        if every:  # include streams without changes
            newest = max((m, t) for _, m, t, _ in self.log)
            for stream in self.streams():
                progress.setdefault(stream, newest)
        for stream, (_, last) in progress.items():
            self.store(stream, last)
        return {p for s, m, _, p in self.log if s not in progress or m > progress[s][0]}

    def streams(self) -> list[bytes]:
        """Return the streams of the generation."""
        select = "SELECT streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = "
        return [stream for row in self.execute(f"{select}{self.generation}") for stream in row[0]]

    def start_generation(self) -> None:
        """Store the generation as the other library does."""
        if self.library == "rust":
            columns = "stream_id, generation, time"
            values = f"0x00, {self.generation}, {2**63 - 1}"
        else:
            columns = "generation, application_name, table_name, stream_id, current_generation"
            values = f"blobAsTimestamp(0x), 'old', '', 0x, {self.generation}"
        self.execute(f"INSERT INTO {{ks}}.positions ({columns}) VALUES ({values})")

    def forget_generation(self) -> None:
        """Remove the generation's row, which has a TTL in scylla-cdc-rust's table."""
        self.execute("DELETE FROM {ks}.positions WHERE stream_id = 0x00")

    def start_reading(self, first: uuid.UUID) -> None:
        """Store the time from which the application starts reading, as scylla-cdc-go does."""
        columns = "generation, application_name, table_name, stream_id, last_timestamp"
        values = f"blobAsTimestamp(0x), 'old', '', 0x, {first}"
        self.execute(f"INSERT INTO {{ks}}.positions ({columns}) VALUES ({values})")

    def store(self, stream: bytes, last: uuid.UUID) -> None:
        """Store the position of a stream whose last handled change was at `last`."""
        if self.library == "rust":
            columns = "stream_id, generation, time"
            end = timeuuid.micros(last.bytes) // 1_000
            values = f"0x{stream.hex()}, {self.generation}, {end}"
        else:
            columns = "generation, application_name, table_name, stream_id, last_timestamp"
            values = f"{self.generation}, 'old', '{self.keyspace}.t', 0x{stream.hex()}, {last}"
        self.execute(f"INSERT INTO {{ks}}.positions ({columns}) VALUES ({values})")

    def run(self, *arguments: str) -> Result:
        hosts = ("--hosts", self.server.contact_point)
        return CliRunner().invoke(main, [arguments[0], *hosts, *arguments[1:]])

    def take_over(self, *arguments: str) -> Result:
        """Import the position for application ``new``."""
        names = self.library, f"{self.keyspace}.positions", f"{self.keyspace}.t"
        who = ("--application", "new", "--from-application", "old")
        return self.run("import-position", *names, *who, *arguments)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A server with 32 streams, some of which have no changes."""
    with EmbeddedScylla(vnodes=16, shards=2) as server:
        yield server


@pytest.fixture(params=sorted(LAYOUTS))
def switch(server: EmbeddedScylla, request: pytest.FixtureRequest) -> Iterator[Switch]:
    """A switch from each library in turn."""
    made = Switch(server, request.param)
    yield made
    made.session.cluster.shutdown()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("every", [True, False], ids=["every stream", "some streams"])
def test_what_the_old_reader_had_not_handled_is_delivered(
    switch: Switch, tmp_path: Path, seed: int, every: bool
) -> None:
    """An application that continues from the imported position gets each unhandled change."""
    unhandled = switch.handle(random.Random(seed), every=every)
    file = str(tmp_path / "new.db")
    imported = switch.take_over("--checkpoint", file)
    assert imported.exit_code == 0, imported.output
    options = ("--checkpoint", file, "--application", "new", "--json", "--until", "now")
    tail = switch.run("tail", f"{switch.keyspace}.t", *options, "--confidence-window", "0s")
    assert tail.exit_code == 0, tail.output
    delivered = {json.loads(line)["key"]["p"] for line in tail.stdout.splitlines()}
    assert unhandled <= delivered


def test_the_position_is_the_earliest_of_all_streams(switch: Switch, tmp_path: Path) -> None:
    """If each stream has a position, changes before the earliest one are not delivered again."""
    switch.handle(random.Random(4), every=True)
    file = tmp_path / "new.db"
    switch.take_over("--checkpoint", str(file))
    stored = SqliteCheckpoints(file).load(CheckpointName("new", TableName(switch.keyspace, "t")))
    assert stored is not None
    earliest = min(micros for _, micros, _, _ in switch.log)
    assert earliest // 1_000 * 1_000 <= stored.position
    assert stored.position > switch.generation * 1_000


def test_a_position_is_not_overwritten(switch: Switch, tmp_path: Path) -> None:
    """An application that has a position keeps it, and the command ends with an error."""
    switch.handle(random.Random(5), every=True)
    arguments = ("--checkpoint", str(tmp_path / "new.db"))
    first = switch.take_over(*arguments)
    assert first.exit_code == 0, first.output
    again = switch.take_over(*arguments)
    assert again.exit_code == 2
    assert "has a position of application 'new'" in again.stderr


def test_a_table_without_positions(switch: Switch) -> None:
    """Without stored positions, the command fails instead of guessing a position."""
    outcome = switch.take_over()
    assert outcome.exit_code == 1
    assert "has no position of application 'old'" in outcome.stderr


def test_a_table_of_something_else(switch: Switch) -> None:
    """Another table is no table of positions; the error says so, without a query."""
    outcome = switch.run("import-position", switch.library, *2 * [f"{switch.keyspace}.t"])
    assert outcome.exit_code == 2  # no application
    names = switch.library, f"{switch.keyspace}.t", f"{switch.keyspace}.t"
    outcome = switch.run("import-position", *names, "--application", "new")
    assert outcome.exit_code == 1
    assert f"{switch.keyspace}.t is not a table of positions of this library" in outcome.stderr
    assert "SELECT" not in outcome.stderr


def test_a_generation_that_the_cluster_does_not_have(switch: Switch) -> None:
    """Positions of another cluster, or from long ago, are rejected."""
    switch.generation -= 1
    switch.start_generation()
    outcome = switch.take_over()
    assert outcome.exit_code == 1
    assert "which" in outcome.stderr
    assert "does not have" in outcome.stderr


def printed(outcome: Result) -> int:
    """Return the position that the command printed, in ms."""
    assert outcome.exit_code == 0, outcome.output
    return int(outcome.stdout.partition("(")[2].partition(" ms")[0])


@pytest.mark.parametrize("switch", ["rust"], indirect=True)
@pytest.mark.parametrize("every", [True, False], ids=["every stream", "some streams"])
def test_positions_outlive_the_row_of_their_generation(switch: Switch, every: bool) -> None:
    """Positions are still imported after the row of their generation has expired.

    The other library writes that row only once, but renews the positions.
    """
    switch.handle(random.Random(6), every=every)
    before = printed(switch.take_over())
    switch.forget_generation()
    assert printed(switch.take_over()) == before


def test_without_its_row_the_newest_generation_with_a_position_counts() -> None:
    """If the generation's row is missing, the newest generation that has a position is used."""
    with EmbeddedScylla(vnodes=4, shards=1) as server:
        switch = Switch(server, "rust")
        older, last = switch.streams()[0], switch.log[-1][2]
        switch.store(older, last)
        first = switch.generation
        server.join()
        switch.generation = server.cluster.generations[-1].start_us // 1_000
        assert switch.generation > first
        assert printed(switch.take_over()) == first
        switch.store(switch.streams()[0], timeuuid.bound((switch.generation + 1) * 1_000))
        assert printed(switch.take_over()) == switch.generation
        switch.session.cluster.shutdown()


@pytest.mark.parametrize("switch", ["go"], indirect=True)
@pytest.mark.parametrize("after", [-1, 1], ids=["before", "after"])
def test_nothing_is_read_from_before_the_first_read(switch: Switch, after: int) -> None:
    """A stream without a position is read from the application's or the generation's start.

    The later of the two starts applies.
    """
    switch.start_generation()
    first = switch.generation + after
    switch.start_reading(timeuuid.bound(first * 1_000))
    assert printed(switch.take_over()) == max(first, switch.generation)
    switch.store(switch.streams()[0], timeuuid.bound((switch.generation + 5) * 1_000))
    assert printed(switch.take_over()) == max(first, switch.generation)


@pytest.mark.parametrize("switch", ["go"], indirect=True)
def test_an_application_that_has_begun_no_generation(switch: Switch) -> None:
    """An application that has stored its start, but no generation, has no position to import."""
    switch.start_reading(switch.log[0][2])
    outcome = switch.take_over()
    assert outcome.exit_code == 1
    assert "has no position of application 'old'" in outcome.stderr
