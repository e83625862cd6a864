"""`scylla-cdc tail` prints the changes of all tables in order of write time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby

import pytest
from attrs import define
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc_reader._time import format_timestamp
from cdc_reader.cli.command import main
from cdc_reader.testing import EmbeddedScylla, ManualClock

SECOND = 1_000_000
TABLES = ("one", "two")
STEPS = st.one_of(
    st.tuples(st.sampled_from(TABLES), st.integers(0, 40), st.sampled_from([0, 0, 1, 400_000])),
    st.tuples(st.just("advance"), st.sampled_from([1, 7, SECOND, 50 * SECOND]), st.just(0)),
    st.tuples(st.just("join"), st.just(0), st.just(0)),
)

pytestmark = pytest.mark.needs("faults", "topology")


@define
class Histories:
    """Writes histories of changes to a server, each to new tables."""

    server: EmbeddedScylla
    clock: ManualClock
    written: int = 0

    def tables(self) -> list[str]:
        """Create two new tables."""
        self.written += 1
        names = [f"ks.{name}_{self.written}" for name in TABLES]
        for name in names:
            self.server.execute(
                f"CREATE TABLE {name} (p int PRIMARY KEY, v int) "
                "WITH cdc = {'enabled': true, 'ttl': 0}"
            )
        return names

    def write(self, names: list[str], steps: list[tuple[str, int, int]]) -> None:
        """Perform each step: write a row, add a node, or advance the clock.

        Some rows get timestamps slightly before the current time.
        """
        begun = self.clock.now()
        for number, (kind, amount, back) in enumerate(steps):
            if kind == "join":
                self.server.join(vnodes=2)
                begun = self.clock.advance(60 * SECOND)
            elif kind == "advance":
                self.clock.advance(amount)
            else:
                at = max(begun, self.clock.now() - back)
                self.server.execute(
                    f"INSERT INTO {names[TABLES.index(kind)]} (p, v) "
                    f"VALUES ({amount}, {number}) USING TIMESTAMP {at}"
                )
        self.clock.advance(SECOND)


@pytest.fixture(scope="module")
def histories() -> Iterator[Histories]:
    """A server with a manual clock."""
    clock = ManualClock(1_700_000_000 * SECOND)
    with EmbeddedScylla(clock=clock, vnodes=3, shards=2) as server:
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        server.execute(f"CREATE KEYSPACE ks WITH replication = {replication}")
        yield Histories(server, clock)


@pytest.mark.slow
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEPS, min_size=5, max_size=80))
def test_changes_are_printed_in_order_of_write_time(
    histories: Histories, steps: list[tuple[str, int, int]]
) -> None:
    """Changes are in order of write time across streams, generations, windows and tables.

    Changes with equal times are printed table by table, and stream by stream.
    """
    began = histories.clock.now()
    names = histories.tables()
    histories.write(names, steps)
    span = ("--from", format_timestamp(began), "--until", format_timestamp(histories.clock.now()))
    histories.clock.advance(60 * SECOND)
    words = ["tail", "--hosts", histories.server.contact_point, *names, *span, "--json"]
    outcome = CliRunner().invoke(main, words)
    assert outcome.exit_code == 0, outcome.output
    found = [json.loads(line) for line in outcome.stdout.splitlines()]
    written = [number for number, (kind, _, _) in enumerate(steps) if kind in TABLES]
    assert sorted(change["deltas"]["v"]["set"] for change in found) == written
    places = [
        (datetime.fromisoformat(change["written_at"]), names.index(change["table"]))
        for change in found
    ]
    assert places == sorted(places)
    for _, tied in groupby(found, lambda change: (change["written_at"], change["table"])):
        streams = [stream for stream, _ in groupby(change["stream"] for change in tied)]
        assert len(streams) == len(set(streams))
