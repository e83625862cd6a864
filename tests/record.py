"""Records a real server's responses as data for the tests: `python -m tests.record HOST:PORT`.

Runs the statements of the newest recordings on the server, and writes its responses to
tests/data/scylla-VERSION-KIND.json.gz. The tests use all files in that directory. Keyspaces have
random names and are dropped at the end. Nothing else on the server is changed. The server must not
require a login. A recording takes about a minute, and ten minutes for `tablets`, whose table is
resized.

Kinds: scenarios (the log after each of 70 short sequences of statements), histories (1,200 random
statements each), dialect (single statements), responses (raw responses to requests), frames (whole
results), and, on servers that support CDC with tablets, tablets (the streams of a table that splits
and merges).
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import WhiteListRoundRobinPolicy

from tests.recordings.dialect import answers
from tests.recordings.frames import record_frames
from tests.recordings.loading import read_recording
from tests.recordings.replay import MADE, Timestamps, raw_select, record_history, record_scenario
from tests.recordings.responses import record_responses
from tests.recordings.tablets import record_tablets

DATA = Path(__file__).parent / "data"
_SERVER = "SELECT release_version, data_center, partitioner FROM system.local"
_ON_VNODES_OR_TABLETS = (
    "replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}} "
    "AND tablets = {{'enabled': {}}}"
)


@frozen
class Server:
    """The server to record: a session, its address, its version, and its layouts.

    `layouts` maps the labels used in file names to the options of keyspaces.
    """

    session: Session
    timestamps: Timestamps
    address: tuple[str, int]
    release: str
    layouts: Mapping[str, str]

    @property
    def version(self) -> str:
        """The server's year and feature release, such as 2026.1."""
        return ".".join(self.release.split(".")[:2])

    @property
    def on_vnodes(self) -> str:
        """The options of a keyspace that uses vnodes."""
        return self.layouts.get("vnodes-", self.layouts.get("", MADE))


def newest(kind: str) -> Any:
    """Load the newest recording of this kind, so that its statements can be run again."""
    paths = DATA.glob(f"scylla-*-{kind}.json.gz")
    return read_recording(max(paths, key=lambda path: _number(path.name.split("-")[1])))


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def scenarios(server: Server) -> Iterator[tuple[str, Any]]:
    """Record the scenarios, once for each layout of keyspaces."""
    recorded = newest("scenarios")["scenarios"]
    described = raw_select(server.session, _SERVER).recording()
    for label, properties in server.layouts.items():
        found = []
        for scenario in recorded:
            at = time.time_ns() // 1000
            found.append(
                record_scenario(server.session, server.timestamps, _plain(scenario), at, properties)
            )
        recording = {"server": described, "keyspace": properties, "scenarios": found}
        yield f"{label}scenarios", recording


def _plain(scenario: Any) -> Any:
    return {**scenario, "ops": [{"op": op["op"]} for op in scenario["ops"]]}


def histories(server: Server) -> Iterator[tuple[str, Any]]:
    """Record the histories, in keyspaces that use vnodes."""
    yield (
        "histories",
        [
            record_history(
                server.session, server.timestamps, each, time.time_ns() // 1000, server.on_vnodes
            )
            for each in newest("histories")
        ],
    )


def dialect(server: Server) -> Iterator[tuple[str, Any]]:
    """Record single statements, with tablets if the server supports CDC with them."""
    properties = next(iter(server.layouts.values()))
    cases = []
    for case in newest("dialect")["cases"]:
        statements = [each["op"] for each in case["ops"]]
        found = answers(server.session, properties, [{"op": op} for op in statements])
        ops = [{"op": op, **answer} for op, answer in zip(statements, found, strict=True)]
        cases.append({"name": case["name"], "ops": ops})
    yield "dialect", {"keyspace": properties, "cases": cases}


def responses(server: Server) -> Iterator[tuple[str, Any]]:
    """Record raw responses and events."""
    yield "responses", record_responses(server.session, server.address, newest("responses"))


def frames(server: Server) -> Iterator[tuple[str, Any]]:
    """Record whole results."""
    recorded = newest("frames")
    yield "frames", record_frames(server.session, server.address, recorded, server.on_vnodes)


def tablets(server: Server) -> Iterator[tuple[str, Any]]:
    """Record the streams of tablets, if the server supports CDC with them."""
    if "tablets-" in server.layouts:
        yield "tablets", record_tablets(server.session, server.release)


KINDS: dict[str, Callable[[Server], Iterator[tuple[str, Any]]]] = {
    each.__name__: each for each in (scenarios, histories, dialect, responses, frames, tablets)
}


def layouts(cluster: Cluster) -> dict[str, str]:
    """Return the options of keyspaces that can have CDC: tablets and vnodes, or the default."""
    keyspaces = cluster.metadata.keyspaces
    described = keyspaces["system_schema"].tables.get("scylla_keyspaces")
    if described is None or "initial_tablets" not in described.columns:
        return {"": MADE}
    if "cdc_streams" not in keyspaces["system"].tables:
        return {"": _ON_VNODES_OR_TABLETS.format("false")}
    return {
        "tablets-": _ON_VNODES_OR_TABLETS.format("true"),
        "vnodes-": _ON_VNODES_OR_TABLETS.format("false"),
    }


def record(address: str, into: Path, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[Path]:
    """Record these kinds, and yield the path of each file when it is written."""
    host, _, port = address.rpartition(":")
    timestamps = Timestamps()
    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy([host]),
        row_factory=lambda _, rows: rows,
        request_timeout=60,
    )
    cluster = Cluster(
        [host],
        port=int(port),
        protocol_version=4,
        timestamp_generator=timestamps,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=60,
        control_connection_timeout=60,
    )
    try:
        session = cluster.connect()
        ((release,),) = session.execute("SELECT version FROM system.versions")
        release = release.partition("-")[0]
        server = Server(session, timestamps, (host, int(port)), release, layouts(cluster))
        for kind in kinds:
            for name, recording in KINDS[kind](server):
                path = into / f"scylla-{server.version}-{name}.json.gz"
                with gzip.open(path, "wt") as file:
                    json.dump(recording, file, indent=0)
                yield path
    finally:
        cluster.shutdown()


def main() -> int:
    """Record the kinds that the command line selects."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.record",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("--into", type=Path, default=DATA, help="folder of the files (tests/data)")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    given = parser.parse_args()
    for path in record(given.address, given.into, given.only):
        print(f"recorded {path}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
