"""Tests that a table's streams change with its tablets as recorded from a real server."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.clock import ManualClock

DATA = Path(__file__).parents[4] / "data"
VERSIONS = sorted(path.name.split("-")[1] for path in DATA.glob("scylla-*-tablets.json.gz"))
LITTLE_MS = 10

State = tuple[str, int, str, str]
"""A tuple (table, index of the stream set, state, token of the stream)."""


def recorded(version: str) -> Any:
    """Load a version's recording: DDL statements, and the streams in each phase."""
    with gzip.open(DATA / f"scylla-{version}-tablets.json.gz", "rt") as file:
        return json.load(file)


def states(rows: list[tuple[str, int, int, bytes]]) -> set[State]:
    """Return the streams with indexes in place of timestamps, and tokens in place of ids.

    Timestamps and the rest of the ids differ between runs.
    """
    times = {table: sorted({row[1] for row in rows if row[0] == table}) for table in ("t", "u")}
    return {
        (table, times[table].index(time), str(state), stream[:8].hex())
        for table, time, state, stream in rows
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_streams_follow_the_least_number_of_tablets(version: str) -> None:
    """A changed minimum number of tablets changes the streams. Disabling CDC does not."""
    recording = recorded(version)
    clock = ManualClock(recording["ddl"][0]["at"] - 60_000_000)
    scylla = EmbeddedScylla(version=version, clock=clock, ring_delay_ms=0)
    scylla.execute(
        "CREATE KEYSPACE tb WITH replication = {'class': 'NetworkTopologyStrategy', "
        "'replication_factor': 1} AND tablets = {'initial': 2}"
    )
    left = list(recording["ddl"])
    for phase in recording["phases"]:
        is_disabled = phase["name"] == "disabled"
        until = left[0]["at"] if is_disabled else phase["at"]
        while left and left[0]["at"] <= until:
            run(scylla, clock, left.pop(0))
        found = states(streams(scylla))
        expected = states(
            [
                (text(table), int(time, 16), int(state, 16), bytes.fromhex(stream))
                for _, table, time, state, stream in phase["streams"]["rows"]
            ]
        )
        # A real server takes a minute per split or merge. The embedded server needs no time.
        assert found >= expected
        assert phase["name"] == "splitting" or found == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_streams_begin_before_their_table(version: str) -> None:
    """The first streams begin five seconds before the table, so that its first writes find them."""
    recording = recorded(version)
    clock = ManualClock(recording["ddl"][0]["at"])
    scylla = EmbeddedScylla(version=version, clock=clock, ring_delay_ms=0)
    scylla.execute(
        "CREATE KEYSPACE tb WITH replication = {'class': 'NetworkTopologyStrategy', "
        "'replication_factor': 1} AND tablets = {'initial': 2}"
    )
    run(scylla, clock, recording["ddl"][0])
    rows = recording["phases"][0]["timestamps"]["rows"]
    (expected,) = (int(time, 16) for _, table, time in rows if text(table) == "t")
    ((found,),) = scylla.execute("SELECT timestamp FROM system.cdc_timestamps")
    assert found is not None
    assert 0 <= expected - int.from_bytes(found, "big") <= LITTLE_MS


def run(scylla: EmbeddedScylla, clock: ManualClock, ddl: dict[str, Any]) -> None:
    """Execute a statement at its recorded time."""
    clock.advance(max(0, ddl["at"] - clock.now()))
    scylla.execute(ddl["cql"])


def streams(scylla: EmbeddedScylla) -> list[tuple[str, int, int, bytes]]:
    """Return the rows of `system.cdc_streams`."""
    rows = scylla.execute("SELECT table_name, timestamp, stream_state, stream_id "
                          "FROM system.cdc_streams")  # fmt: skip
    return [
        (table.decode(), int.from_bytes(time, "big"), int.from_bytes(state, "big"), stream)
        for table, time, state, stream in rows
        if table is not None and time is not None and state is not None and stream is not None
    ]


def text(cell: str) -> str:
    """Decode a recorded text."""
    return bytes.fromhex(cell).decode()
