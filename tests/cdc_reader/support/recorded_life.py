"""Replays of recorded clusters: rows and generations appear at their recorded times."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from cdc_reader.cluster.log import CdcTable
from cdc_reader.config import ReadConfig
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName, quoted
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import Delivery
from cdc_reader.reading.follower import Follower
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla, ManualClock
from cdc_reader.testing.in_process import InProcessConnection, RecordedQuery
from tests.recordings.comparison import Cells, Result
from tests.recordings.decoding import decoded
from tests.recordings.loading import read_recording

DATA = Path(__file__).parents[2] / "data"
SECOND = 1_000_000
_BEFORE = 3_600 * SECOND
_ANSWER = 2_000
"""The duration of each query, in µs."""
_DESCRIBE = (
    "INSERT INTO system_distributed.cdc_streams_descriptions_v2 (time, range_end, streams) "
    "VALUES (?, ?, ?)"
)
_ANNOUNCE = (
    "INSERT INTO system_distributed.cdc_generation_timestamps (time, key) VALUES (?, 'timestamps')"
)


@frozen
class Event:
    """A statement, and the time `at` (in µs) at which its effect was first visible."""

    at: int
    cql: str
    cells: Cells


@frozen
class Recorded:
    """A recorded table: its log, its streams by generation start (in µs), and all events.

    `announced` contains the time at which each generation was first visible.
    """

    table: str
    log: Result
    streams: dict[int, frozenset[StreamId]]
    announced: dict[int, int]
    events: Sequence[Event]

    @property
    def times(self) -> list[int]:
        """The write times of the log's rows, in ascending order."""
        return sorted(timeuuid.micros(bytes(row[1] or b"")) for row in self.log.rows)


def switch() -> Recorded:
    """Return a recording of a writer that writes every few milliseconds while a node joins."""
    recorded = read_recording(DATA / "scylla-5.2-switch.json.gz")
    seen = {int(each["timestamp_visible"], 16) * 1_000: each["at_us"] for each in recorded["seen"]}
    acknowledged = {write[2]: write[3] for write in recorded["writes"]}
    log = Result.from_recording(recorded["log"])
    table = "CREATE TABLE ks.t (pk int, seq int, PRIMARY KEY (pk, seq))"
    return _recorded(table, log, recorded["streams"], seen, acknowledged)


def generations() -> Recorded:
    """Return a recording of three generations.

    A node joins and leaves, and the streams are repaired.
    """
    recorded = read_recording(DATA / "scylla-5.2-generations.json.gz")
    seen: dict[int, int] = {}
    for phase in recorded["phases"]:
        for _, start, _ in phase["timestamps"]["rows"]:
            seen.setdefault(int(start, 16) * 1_000, phase["at_us"])
    first = min(seen)
    log = Result.from_recording(recorded["log_t"])
    table = "CREATE TABLE ks.t (pk int, ck int, v text, PRIMARY KEY (pk, ck))"
    return _recorded(table, log, recorded["phases"][-1]["streams"], {**seen, first: first}, {})


def _recorded(
    table: str, log: Result, streams: Any, seen: dict[int, int], acknowledged: dict[int, int]
) -> Recorded:
    described = Result.from_recording(streams)
    of: dict[int, set[StreamId]] = defaultdict(set)
    for row in decoded(described):
        of[round(row["time"].timestamp() * 1_000) * 1_000].update(map(StreamId, row["streams"]))
    events = [
        *(Event(seen[_start(cells)], _DESCRIBE, cells) for cells in described.rows),
        *(
            Event(at, _ANNOUNCE, [(start // 1_000).to_bytes(8, "big")])
            for start, at in seen.items()
        ),
        *_rows(log, acknowledged),
    ]
    events.sort(key=lambda event: event.at)
    sets = {start: frozenset(each) for start, each in of.items()}
    return Recorded(table, log, sets, seen, events)


def _start(cells: Cells) -> int:
    return int.from_bytes(cells[0] or b"", "big") * 1_000


def _rows(log: Result, acknowledged: dict[int, int]) -> Iterator[Event]:
    for row in log.rows:
        given = [(quoted(name), cell) for (name, _), cell in zip(log.columns, row, strict=True)]
        names, cells = zip(*((n, cell) for n, cell in given if cell is not None), strict=True)
        marks = ", ".join("?" for _ in names)
        cql = f"INSERT INTO ks.t_scylla_cdc_log ({', '.join(names)}) VALUES ({marks})"
        written = timeuuid.micros(bytes(row[1] or b""))
        yield Event(acknowledged.get(written, written + _ANSWER), cql, cells)


@define
class _Life:
    """A `Clock` that executes each recorded event when its time comes."""

    server: EmbeddedScylla
    clock: ManualClock
    events: Sequence[Event]
    done: int = 0

    def now(self) -> int:
        return self.clock.now()

    def sleep(self, micros: int, wake: threading.Event) -> None:
        if not wake.is_set():
            self.pass_time(micros)

    def pass_time(self, micros: int) -> None:
        now = self.clock.advance(micros)
        while self.done < len(self.events) and self.events[self.done].at <= now:
            self.server.execute(self.events[self.done].cql, self.events[self.done].cells)
            self.done += 1


@frozen
class Reading:
    """A query of the log: its time (in µs), its streams and its window."""

    at: int
    streams: frozenset[StreamId]
    window: Window


@define
class Followed:
    """The result of following a recording."""

    deliveries: list[Delivery] = field(factory=list)
    readings: list[Reading] = field(factory=list)


def follow(recorded: Recorded, config: ReadConfig) -> Followed:
    """Follow a recording from before its first row until its last row has settled."""
    times, clock = recorded.times, ManualClock(min(recorded.streams) - _BEFORE)
    server = EmbeddedScylla(clock=clock, vnodes=1, shards=1)
    server.execute(
        "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
        "'replication_factor': 1} AND tablets = {'enabled': false}"
    )
    server.execute(f"{recorded.table} WITH cdc = {{'enabled': true, 'ttl': 0}}")
    life, followed = _Life(server, clock, recorded.events), Followed()
    life.pass_time(times[0] - SECOND - clock.now())

    def note(asked: RecordedQuery) -> None:
        life.pass_time(_ANSWER)
        if "cdc$time" in asked.query.cql and asked.query.columns:
            followed.readings.append(_reading(clock.now(), *asked.query.values))

    connection = InProcessConnection(server, config, before=note)
    table = CdcTable(connection, TableName("ks", "t"))
    follower = Follower(table, life, config, Checkpoint(times[0]))
    followed.deliveries += follower.follow(times[-1] + 1)
    return followed


def _reading(at: int, streams: Any, start: Any, end: Any) -> Reading:
    window = Window(timeuuid.micros(start.bytes), timeuuid.micros(end.bytes))
    return Reading(at, frozenset(streams), window)
