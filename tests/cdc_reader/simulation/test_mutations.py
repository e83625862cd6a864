"""The simulation detects defects. Each test breaks the engine in one way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from attrs import evolve

from cdc_reader._time import BEGINNING, duration_micros
from cdc_reader.checkpoints import MemoryCheckpoints, acknowledgement
from cdc_reader.checkpoints.lease import Lease
from cdc_reader.checkpoints.ranges import RangeAcknowledgements
from cdc_reader.cluster import ClusterClock, log, queries
from cdc_reader.cluster.generations import TabletGenerations
from cdc_reader.cluster.schema import SchemaSource
from cdc_reader.consumer import snapshot_start
from cdc_reader.cql import timeuuid
from cdc_reader.errors import TransientError
from cdc_reader.reading import (
    advance,
    bounded,
    cursor,
    deduplication,
    follower,
    loss,
    snapshot,
    undelivered,
)
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.late import rows as late_rows
from cdc_reader.reading.late import strays
from cdc_reader.reading.windows import fetch, planner
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.ownership import Ownership
from cdc_reader.streams.range_cutter import RangeCutter
from cdc_reader.streams.ring import TokenRange, TokenRanges
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.window import Window
from tests.cdc_reader.simulation.simulation import DIFFERING, BrokenSeed, simulate

_MOST_SEEDS = 60

pytestmark = pytest.mark.needs("faults", "topology")


def _only_the_newest(self: Timeline, window: Window) -> list[Window]:
    return [span for span in self.operating() if not span.intersect(window).is_empty][-1:]


def _newer_first(self: Timeline, window: Window) -> list[Window]:
    return [span for span in self.operating() if not span.intersect(window).is_empty][::-1]


def _from_the_beginning(request: Any, paging_state: bytes | None) -> Any:
    answers = chain([request(paging_state)], map(request, repeat(None)))

    def attempt() -> Any:
        answer = next(answers)
        return answer()

    return attempt


def _until_it_fails(self: Any, query: Any, request: Any, attempt: Any) -> Iterator[Any]:
    once = SimpleNamespace(retry=lambda attempt: attempt(), _page=self._page)
    with suppress(TransientError):
        yield from _PAGES(once, query, request, attempt)  # type: ignore[arg-type]


def _ahead(self: Any, table: Any, clock: Any, config: Any, start: Any, shard: Any = None) -> None:
    _INIT(self, table, clock, config, start, shard)
    if start.marks:
        last = max(key.micros for mark in start.marks.values() for key in _keys(mark))
        self._cursor = evolve(self._cursor, position=last)


def _keys(mark: Any) -> list[Any]:
    return [*mark.rows, *([mark.acked_through] if mark.acked_through else [])]


def _caught_up_at_once(self: Any, step: Any) -> Iterator[Any]:
    self._cursor = evolve(self._cursor, generations=step.generations)
    for window in step.missed.values():
        yield (self._complete(window, late=True),)


def _in_the_last_part(self: Any, end: int, _began: int) -> Any:
    return evolve(self, ends=(*self.ends[:-1], end))


def _saved_anyway(self: Any, _owner: Any, name: Any, checkpoint: Any) -> bool:
    self.save(name, checkpoint)
    return True


def _renewed_anyway(self: Any, name: Any, owner: Any, duration: Any) -> bool:
    self._hold(name, owner, duration)
    return True


def _at_its_end(self: Any) -> Checkpoint:
    settled = self._clock.now() - duration_micros(self._config.confidence_window)
    complete: Checkpoint = _COMPLETE(self)
    return evolve(complete, position=settled)


def _all_of_it(self: Any, ownership: Any) -> RangeCutter:
    self._total = ownership.spans.size
    return RangeCutter(ownership.spans, ownership.ends, 100)


def _without_gaps(self: TokenRanges, *more: TokenRange) -> TokenRanges:
    found = [*self, *more]
    start, end = min(each.start for each in found), max(each.end for each in found)
    return TokenRanges([TokenRange(start, end)])


def _of_all_shards(self: Ownership, groups: Any, _shard: Shard) -> None:
    _OWNED(self, groups, Shard())


def _of_no_groups(self: Ownership, _groups: Any, shard: Shard) -> None:
    _OWNED(self, (), shard)


def _unless_snapshot(value: Any, **changes: Any) -> Any:
    return value if changes == {"snapshot": None} else evolve(value, **changes)


def _of_one_node(self: Any, _since: int | None = None, **_of_all: bool) -> Any:
    return _TIMESTAMPS(self, of_all=False)


def _of_any_node(self: Any, name: Any) -> Any:
    schema = SchemaSource(self._queries).log_schema(name)
    return evolve(schema, version=self._queries.schema_version())


def _refreshed_at_one_node(self: Any, *, of_all: bool = False) -> bool:
    del of_all
    return _REFRESH(self)


_TIMESTAMPS = TabletGenerations.timestamps
_REFRESH = fetch.CurrentLog.refresh
_INIT = follower.Follower.__init__
_OWNED = Ownership.__init__
_COMPLETE: Any = vars(snapshot.SnapshotReader)["complete"].fget
_PAGES = queries.Queries._pages
_BOUND = timeuuid.bound


def _of_the_first_pass(
    answers: queries.SharedAnswers, name: str, _since: Any, ask: Callable[[], Any], _until: Any
) -> Any:
    """Return what was asked first, however long ago."""
    kept = vars(answers).setdefault("kept", {})
    if name not in kept:
        kept[name] = ask()
    return kept[name]


MUTATIONS: dict[str, tuple[object, str, Any, int]] = {
    "shared answers: those of the first pass are used for ever": (
        (queries.SharedAnswers, "answer", _of_the_first_pass, 21)
    ),
    "hand-over: of a window, only the newest part is read": (
        (Timeline, "touched", _only_the_newest, 8)
    ),
    "hand-over: newer generations first": (Timeline, "touched", _newer_first, 63),
    "hand-over: one announced late is passed over": (
        (cursor.KnownGenerations, "missed", lambda *_: {}, 28)
    ),
    "catch-up: said to be done before it is": (
        (follower.Follower, "_catch_up", _caught_up_at_once, 28)
    ),
    "cursor: what it knew of late rows is forgotten": (
        (cursor.LateState, "knowing", lambda self, _names: self, 15)
    ),
    "cursor: late rows are read as if all had arrived": (
        (
            cursor.LateState,
            "after",
            lambda self, end, _: evolve(self, ends=(*self.ends[:-1], end)),
            36,
        )
    ),
    "resume: marks are not heeded": (undelivered, "leave_out", lambda batch, _marks: batch, 25),
    "resume: from the last mark on": (follower.Follower, "__init__", _ahead, 3),
    "dedup: what was seen is forgotten": (
        (deduplication.Deduplicator, "_seen", lambda _self: pa.array([], pa.string()), 8)
    ),
    "dedup: nobody is told what comes behind": (
        (deduplication.Deduplicator, "_is_behind", lambda _self, _stream, _key: False, 12)
    ),
    "late rows: none is found": (
        (late_rows.Sweep, "_is_late", lambda _self, _name, _arrival: False, 4)
    ),
    "late rows: those that came in time are found too": (
        (late_rows.Sweep, "_is_late", lambda _self, _name, _arrival: True, 4)
    ),
    "strays: other streams than those in force are not read": (
        (planner.Planner, "strays", lambda _self, _window, _starts=None: [], 89)
    ),
    "strays: a row that is in two streams is delivered from both": (
        (strays.Strays, "without_twins", lambda _self, found, _twins: iter(found), 4)
    ),
    "strays: a twin among the rows in force is overlooked": (
        (strays.Twins, "note", lambda _self, _batch: None, 4)
    ),
    "window: ends are a microsecond too late": (
        (timeuuid, "bound", lambda micros: _BOUND(micros + 1), 8)
    ),
    "window: goes beyond what has settled": (
        (advance, "settled_before", lambda now, _confidence: now, 1)
    ),
    "faults: a page that fails is asked for from the beginning": (
        (queries, "_attempts", _from_the_beginning, 5)
    ),
    "faults: a page that fails is taken for the last": (
        (queries.Queries, "_pages", _until_it_fails, 5)
    ),
    "schema: read once": (fetch.CurrentLog, "refresh", lambda *_, **__: False, 1),
    "shards: each reads everything": (
        (planner.Planner, "_own", lambda _self, generation: generation.streams(), 7)
    ),
    "expiry: not judged after reading": (
        (loss.FollowerLosses, "check_read", lambda *_, **__: None, 8)
    ),
    "expiry: a bounded read is not judged after reading": (
        (bounded.BoundedRead, "finish", lambda _self: None, 78)
    ),
    "clock: the machine's is never corrected": (
        (ClusterClock, "_correction", lambda _self, _own: 0, 3)
    ),
    "lease: not looked at when saving": (MemoryCheckpoints, "save_as", _saved_anyway, 11),
    "lease: renewed though another took over": (MemoryCheckpoints, "renew", _renewed_anyway, 7),
    "lease: counted on for good": (
        (Lease, "is_sure", property(lambda self: self._until > BEGINNING), 3)
    ),
}
"""The object and attribute to replace, the replacement, and a seed that detects the defect."""


SNAPSHOT_MUTATIONS: dict[str, tuple[object, str, Any, int]] = {
    "start: not settled": (snapshot, "settled_before", lambda now, _confidence: now, 1),
    "start: each shard by itself": (
        (snapshot_start, "snapshot_start", lambda _name, _store, _config, _stop, begin: begin(), 7)
    ),
    "log: followed from the end of the snapshot": (
        (snapshot.SnapshotReader, "complete", property(_at_its_end), 1)
    ),
    "log: late rows are not sought": (
        snapshot.SnapshotReader,
        "complete",
        property(lambda self: evolve(_COMPLETE(self), late=None)),
        4,
    ),
    "ranges: done before their rows are handled": (
        (RangeAcknowledgements, "deliver", lambda _self, _reading, _rows=1: None, 2)
    ),
    "ranges: done and read again": (snapshot.SnapshotReader, "_cutter", _all_of_it, 4),
    "ranges: gaps are lost where they are merged": (TokenRanges, "adding", _without_gaps, 1),
    "ranges: dropped when the schema changes": (
        (RangeCutter, "put_back", lambda _self, _ranges: None, 24)
    ),
    "rows: a page that fails is taken for the last": (
        queries.Queries,
        "_pages",
        _until_it_fails,
        2,
    ),
    "rows: a shard reads those of others": (Ownership, "__init__", _of_all_shards, 3),
    "rows: a shard has those of its part of the ring": (Ownership, "__init__", _of_no_groups, 2),
    "checkpoint: saved as begun though it is complete": (
        (acknowledgement, "evolve", _unless_snapshot, 8)
    ),
}
"""The same as `MUTATIONS`, for histories that start with a snapshot."""


NODES_MUTATIONS: dict[str, tuple[object, str, Any, int]] = {
    "streams: one node is asked at first": ((TabletGenerations, "timestamps", _of_one_node, 89)),
    "streams: a node that does not know the set is believed": (
        (TabletGenerations, "_check_forgotten", lambda _self, _start, _node: None, 14)
    ),
    "columns: those of any node": (log.CdcTable, "_of_nodes", _of_any_node, 7),
    "columns: one node is asked whether they changed": (
        (fetch.CurrentLog, "refresh", _refreshed_at_one_node, 120)
    ),
    "columns: a node that does not know them refuses for all": (
        (queries.Queries, "_page", lambda _self, _query, _state, attempt: attempt(), 1)
    ),
}
"""The same as `MUTATIONS`, for histories in which nodes differ."""


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_simulation_finds_what_is_broken(
    mutation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With at least one seed, the simulation detects the defect."""
    _check_found(*MUTATIONS[mutation], monkeypatch, snapshot=False)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", SNAPSHOT_MUTATIONS)
def test_the_simulation_finds_what_is_broken_in_snapshots(
    mutation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With at least one seed, the simulation detects the defect in the reading of snapshots."""
    _check_found(*SNAPSHOT_MUTATIONS[mutation], monkeypatch, snapshot=True)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", NODES_MUTATIONS)
def test_the_simulation_finds_what_is_broken_where_nodes_differ(
    mutation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With at least one seed, the simulation detects the defect if nodes differ."""
    _check_found(*NODES_MUTATIONS[mutation], monkeypatch, snapshot=False, differing=1.0)


def _check_found(
    owner: object,
    name: str,
    broken: Any,
    known: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    snapshot: bool,
    differing: float = DIFFERING,
) -> None:
    is_whole = partial(_is_whole, snapshot=snapshot, differing=differing)
    assert is_whole(known)
    monkeypatch.setattr(owner, name, broken)
    assert not all(map(is_whole, (known, *range(1, _MOST_SEEDS))))


def _is_whole(seed: int, *, snapshot: bool, differing: float) -> bool:
    """Return True if all laws hold in the seed's history."""
    try:
        simulate(seed, snapshot=snapshot, differing=differing)
    except BrokenSeed:
        return False
    return True
