"""Tests that the embedded server behaves like the real servers that were recorded."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cassandra.cluster import Cluster, Session

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.clock import ManualClock
from tests.drivers import PATIENT
from tests.recordings.replay import (
    Timestamps,
    recorded_history,
    recorded_scenario,
    replay_history,
    replay_scenario,
)

DATA = Path(__file__).parents[3] / "data"
NOW = 1_800_000_000_000_000
MADE = "replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
UPTIME = 60_000_000
"""Server uptime in µs, longer than any history, so that all writes go to the first generation."""


def recorded(path: Path) -> Any:
    """Load a recording from the test data."""
    with gzip.open(path, "rt") as file:
        return json.load(file)


def version_of(path: Path) -> str:
    """Return the version from which a recording was made."""
    return path.name.split("-")[1]


def scenarios() -> Iterator[Any]:
    """Yield each scenario of each version, with its keyspace properties, as a test parameter."""
    for path in sorted(DATA.glob("scylla-*-scenarios.json.gz")):
        recording = recorded(path)
        label = path.name.removeprefix("scylla-").removesuffix("-scenarios.json.gz")
        for scenario in recording["scenarios"]:
            name = f"{label}-{scenario['name']}"
            yield pytest.param(version_of(path), recording.get("keyspace", MADE), scenario, id=name)


def histories() -> Iterator[Any]:
    """Yield each recorded history of random statements of each version, as a test parameter."""
    for path in sorted(DATA.glob("scylla-*-histories.json.gz")):
        for number, history in enumerate(recorded(path)):
            name = f"{version_of(path)}-seed-{history['seed']}"
            marks = [pytest.mark.slow] if number else []
            yield pytest.param(version_of(path), history, id=name, marks=marks)


@pytest.fixture(scope="module")
def timestamps() -> Timestamps:
    """The timestamp generator of the session."""
    return Timestamps()


@pytest.fixture(scope="module")
def session(version: str, timestamps: Timestamps) -> Iterator[Session]:
    """A session with a server that behaves like the recorded version."""
    clock = ManualClock(NOW - UPTIME)
    with EmbeddedScylla(version=version, clock=clock) as server:
        clock.advance(UPTIME)
        cluster = Cluster(
            [server.host],
            port=server.port,
            protocol_version=4,
            timestamp_generator=timestamps,
            schema_metadata_enabled=False,
            token_metadata_enabled=False,
            **PATIENT,
        )
        try:
            yield cluster.connect()
        finally:
            cluster.shutdown()


@pytest.mark.parametrize(("version", "keyspace", "scenario"), list(scenarios()), scope="module")
def test_a_recorded_scenario_repeats(
    session: Session, timestamps: Timestamps, keyspace: str, scenario: dict[str, Any]
) -> None:
    """The same statements produce the same log, base table, schema and errors."""
    outcome = replay_scenario(session, timestamps, scenario, NOW, keyspace)
    found = list(recorded_scenario(scenario).differences(outcome))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("version", "history"), list(histories()), scope="module")
def test_a_recorded_history_repeats(
    session: Session, timestamps: Timestamps, history: dict[str, Any]
) -> None:
    """1,200 random statements produce the recorded log, base table and write times."""
    outcome = replay_history(session, timestamps, history, NOW)
    found = list(recorded_history(history).differences(outcome))
    assert not found, "\n".join(found)
