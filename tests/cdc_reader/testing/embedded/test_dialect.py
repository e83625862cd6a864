"""Tests that responses to single statements equal those recorded from real servers.

Statements that the embedded server does not support are listed in `REFUSED`.
"""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session

from cdc_reader.testing import EmbeddedScylla
from tests.drivers import PATIENT
from tests.recordings.dialect import Answer, answers

DATA = Path(__file__).parents[3] / "data"
VERSIONS = sorted(path.name.split("-")[1] for path in DATA.glob("scylla-*-dialect.json.gz"))
REFUSED = ("GROUP BY", "SELECT JSON count(*)", " LIKE 'x%'", "COMPACT STORAGE")
"""Words that identify the statements that the embedded server does not support."""
_STARTED = re.compile(r"(?<=current generation started at: )[^)]+")
"""Matches, in an error message, the time at which the server's first generation began."""


def recorded(version: str) -> Any:
    """Load a version's recording: its keyspace properties and its cases."""
    with gzip.open(DATA / f"scylla-{version}-dialect.json.gz", "rt") as file:
        return json.load(file)


def cases() -> Iterator[Any]:
    """Yield each recorded case of each version, as a test parameter."""
    for version in VERSIONS:
        recording = recorded(version)
        for case in recording["cases"]:
            name = f"{version}-{case['name']}"
            yield pytest.param(version, recording["keyspace"], case["ops"], id=name)


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    """Sessions with a server of each version, by version."""
    servers = {version: EmbeddedScylla(version=version).start() for version in VERSIONS}
    clusters = {
        version: Cluster(
            [server.host],
            port=server.port,
            protocol_version=4,
            execution_profiles={
                EXEC_PROFILE_DEFAULT: ExecutionProfile(row_factory=lambda _, rows: rows)
            },
            schema_metadata_enabled=False,
            token_metadata_enabled=False,
            **PATIENT,
        )
        for version, server in servers.items()
    }
    try:
        yield {version: cluster.connect() for version, cluster in clusters.items()}
    finally:
        for cluster in clusters.values():
            cluster.shutdown()
        for server in servers.values():
            server.stop()


def comparable(response: Answer) -> Answer:
    """Return a response without the time at which the server's first generation began."""
    if "error" not in response:
        return response
    code, message = response["error"]
    return {**response, "error": [code, _STARTED.sub("", message)]}


def is_unsupported(found: Answer, op: Any) -> bool:
    """Return True if the response rejects a listed statement as not supported."""
    message = found.get("error", ["", ""])[1]
    return "is not supported by this server" in message and any(w in str(op) for w in REFUSED)


@pytest.mark.parametrize(("version", "replication", "ops"), list(cases()))
def test_a_recorded_case_repeats(
    sessions: dict[str, Session], version: str, replication: str, ops: list[Any]
) -> None:
    """All responses equal the recorded responses, including errors, columns, rows and warnings."""
    found = answers(sessions[version], replication, ops)
    wrong = [
        f"{expected}\n  found {response}"
        for expected, response in zip(ops, found, strict=True)
        if not is_unsupported(response, expected["op"])
        and comparable({"op": expected["op"], **response}) != comparable(expected)
    ]
    assert not wrong, "\n".join(wrong)
