"""The embedded server does what a real ScyllaDB 5.2 was recorded doing."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cassandra.cluster import Cluster, Session

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.clock import ManualClock
from cdc_reader.testing.replay import (
    Timestamps,
    recorded_history,
    recorded_scenario,
    replay_history,
    replay_scenario,
)

DATA = Path(__file__).parents[3] / "data"
NOW = 1_800_000_000_000_000
UPTIME = 60_000_000
"""µs: longer than the longest history, whose first write the server's generation must take."""


def recorded(name: str) -> Any:
    """A recording of the test data."""
    with gzip.open(DATA / f"scylla-5.2-{name}.json.gz", "rt") as file:
        return json.load(file)


@pytest.fixture(scope="module")
def timestamps() -> Timestamps:
    """What stamps the writes of the session."""
    return Timestamps()


@pytest.fixture(scope="module")
def session(timestamps: Timestamps) -> Iterator[Session]:
    """A session of a server that behaves as the recorded version did."""
    clock = ManualClock(NOW - UPTIME)
    with EmbeddedScylla(version="5.2", clock=clock) as server:
        clock.advance(UPTIME)
        cluster = Cluster(
            [server.host],
            port=server.port,
            protocol_version=4,
            timestamp_generator=timestamps,
            schema_metadata_enabled=False,
            token_metadata_enabled=False,
        )
        try:
            yield cluster.connect()
        finally:
            cluster.shutdown()


@pytest.mark.parametrize("scenario", recorded("scenarios")["scenarios"], ids=lambda s: s["name"])
def test_a_recorded_scenario_repeats(
    session: Session, timestamps: Timestamps, scenario: dict[str, Any]
) -> None:
    """The same statements leave the same log, base table and schema, and the same refusals."""
    outcome = replay_scenario(session, timestamps, scenario, NOW)
    found = list(recorded_scenario(scenario).differences(outcome))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("history", recorded("histories"), ids=lambda h: f"seed-{h['seed']}")
def test_a_recorded_history_repeats(
    session: Session, timestamps: Timestamps, history: dict[str, Any]
) -> None:
    """1,200 random statements leave the same log, base table and write times."""
    outcome = replay_history(session, timestamps, history, NOW)
    found = list(recorded_history(history).differences(outcome))
    assert not found, "\n".join(found)
