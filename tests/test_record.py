"""`python -m tests.record` records a server, here the embedded one, in the form that tests read."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from cdc_reader._time import SystemClock
from cdc_reader.testing import EmbeddedScylla, Scylla
from tests import record
from tests.recordings.loading import read_recording
from tests.recordings.replay import MADE, recorded_history, recorded_scenario

KINDS_OF = {
    "5.2": {"dialect", "frames", "histories", "responses", "scenarios"},
    "2026.1": {
        "dialect",
        "frames",
        "histories",
        "responses",
        "tablets",
        "tablets-scenarios",
        "vnodes-scenarios",
    },
}
LEAST_EQUAL = 0.98


@pytest.fixture(scope="module", params=KINDS_OF)
def version(request: pytest.FixtureRequest) -> str:
    """The version that the recorded server simulates."""
    return str(request.param)


@pytest.fixture(scope="module")
def recorded(version: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The recordings of a server, by kind. Recording leaves the server's other keyspaces unchanged.

    One of these keyspaces has the name of a keyspace that the recorded statements drop.
    """
    folder = tmp_path_factory.mktemp("recorded")
    # The first generation begins an hour before the oldest writes, because the machine's clock may
    # be set back by a minute.
    clock = Since(time.time_ns() // 1000 - 3_600_000_000)
    with EmbeddedScylla(version=version, ring_delay_ms=0, clock=clock) as server:
        clock.is_running = True
        server.execute(f"CREATE KEYSPACE nonexist WITH {MADE}")  # recorded statements drop it
        before = set(server.catalog.keyspaces)
        paths = list(record.record(server.contact_point, folder))
        assert set(server.catalog.keyspaces) == before
    assert sorted(paths) == sorted(folder.iterdir())
    prefix, suffix = f"scylla-{version}-", ".json.gz"
    assert all(path.name.startswith(prefix) for path in paths)
    return {
        path.name.removeprefix(prefix).removesuffix(suffix): read_recording(path) for path in paths
    }


class Since(SystemClock):
    """A clock that shows `start` (µs) until it runs, and the system's time from then on."""

    def __init__(self, start: int) -> None:
        self._start = start
        self.is_running = False

    def now(self) -> int:
        """Return the time, in µs since 1970."""
        return time.time_ns() // 1000 if self.is_running else self._start


def kept(version: str, kind: str) -> Any:
    """Return the recording of the real server."""
    return read_recording(record.DATA / f"scylla-{version}-{kind}.json.gz")


@pytest.mark.nightly
def test_every_kind_is_recorded(recorded: dict[str, Any], version: str) -> None:
    """Every kind is recorded. Tablets are recorded only if the server supports CDC with them."""
    assert set(recorded) == KINDS_OF[version]


@pytest.mark.nightly
def test_scenarios_recorded_here_are_those_of_the_real_server(
    recorded: dict[str, Any], version: str
) -> None:
    """Scenarios recorded here have the same log, base table, schema and errors as the real ones."""
    for kind in (each for each in KINDS_OF[version] if each.endswith("scenarios")):
        pairs = zip(kept(version, kind)["scenarios"], recorded[kind]["scenarios"], strict=True)
        for expected, found in pairs:
            assert expected["name"] == found["name"]
            wanted = recorded_scenario(expected)
            assert not list(wanted.differences(recorded_scenario(found))), expected["name"]


@pytest.mark.nightly
def test_histories_recorded_here_are_those_of_the_real_server(recorded: dict[str, Any]) -> None:
    """Histories recorded here equal the real ones, including their relative write times."""
    for expected, found in zip(record.newest("histories"), recorded["histories"], strict=True):
        assert not list(recorded_history(expected).differences(recorded_history(found)))


@pytest.mark.nightly
def test_statements_recorded_here_are_those_of_the_real_server(
    recorded: dict[str, Any], version: str
) -> None:
    """Nearly all responses recorded here are equal to the real server's responses."""
    expected = kept(version, "dialect")
    assert recorded["dialect"]["keyspace"].split() == expected["keyspace"].split()
    pairs = [
        (a, b)
        for one, other in zip(expected["cases"], recorded["dialect"]["cases"], strict=True)
        for a, b in zip(one["ops"], other["ops"], strict=True)
    ]
    assert sum(a == b for a, b in pairs) >= LEAST_EQUAL * len(pairs)


@pytest.mark.nightly
def test_answers_and_frames_have_the_form_of_those_of_the_real_server(
    recorded: dict[str, Any],
) -> None:
    """Requests, labels and keys equal those of the real server. Other tests compare bytes."""
    expected = record.newest("responses")
    requests = [each["request"] for each in expected["responses"]]
    assert [each["request"] for each in recorded["responses"]["responses"]] == requests
    assert recorded["responses"]["events"]
    frames, real = recorded["frames"], record.newest("frames")
    labels = {each["label"] for each in real["results"]}
    assert {each["label"] for each in frames["results"]} == labels - {"stream_ids"}
    assert all(each["rows"] for each in frames["results"] if each["label"] != "empty_result")
    assert set(frames["supported"]) >= set(real["supported"])
    assert json.dumps(frames).isascii()


@pytest.mark.nightly
def test_recorded_tablets_go_through_the_phases_of_the_real_server(
    recorded: dict[str, Any], version: str
) -> None:
    """Recordings of tablets have the same statements and phases as the real recordings."""
    if "tablets" not in KINDS_OF[version]:
        assert "tablets" not in recorded
        return
    expected, found = kept(version, "tablets"), recorded["tablets"]
    assert [each["cql"] for each in found["ddl"]] == [each["cql"] for each in expected["ddl"]]
    assert [p["name"] for p in found["phases"]] == [p["name"] for p in expected["phases"]]


@pytest.mark.nightly
def test_the_command_writes_to_the_given_directory(
    scylla: Scylla,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command writes a single kind to the given directory."""
    command = ["record", scylla.contact_point, "--into", str(tmp_path), "--only", "dialect"]
    monkeypatch.setattr("sys.argv", command)
    assert record.main() == 0
    (path,) = tmp_path.iterdir()
    assert f"recorded {path}" in capsys.readouterr().out
    assert read_recording(path)["cases"]
