"""Saves and loads of checkpoints, tested with every store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from cdc_reader._time import BEGINNING
from cdc_reader.checkpoints import MemoryCheckpoints, ScyllaCheckpoints, SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import (
    Checkpoint,
    KnownGenerations,
    LateState,
    Mark,
    RowKey,
    SnapshotProgress,
)
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.streams.ring import TokenRange, TokenRanges
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN
from cdc_reader.streams.stream import StreamId

if TYPE_CHECKING:
    from cdc_reader.checkpoints.store import CheckpointStore

BASE = 1_700_000_000_000_000
STREAMS = [StreamId.from_parts(token, 1, 0) for token in (-(1 << 63) + 1, -5, 7)]
NAMES = [
    CheckpointName("app", TableName("ks", "t")),
    CheckpointName("app", TableName("ks", "t"), "1/2"),
    CheckpointName("Größe", TableName("ks", "U")),
]


def key(micros: int, seq: int = 0, low: bytes = b"\x80" * 8) -> RowKey:
    """Return the key of a row written at `BASE` + `micros`."""
    return RowKey(timeuuid.make(BASE + micros, low).bytes, seq)


@pytest.fixture(params=["memory", "sqlite", "scylla"])
def open_store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[], CheckpointStore]]:
    """A function that closes the store and returns it. The next use of the store reopens it."""
    store: CheckpointStore
    if request.param == "memory":
        store = MemoryCheckpoints()
    elif request.param == "sqlite":
        store = SqliteCheckpoints(tmp_path / "checkpoints.db")
    else:
        connection = request.getfixturevalue("connection")
        store = ScyllaCheckpoints(connection, request.getfixturevalue("keyspace"))

    def reopened() -> CheckpointStore:
        store.close()
        return store

    yield reopened
    store.close()


def late_state(start: int, parts: Any, known: Any, snapshot_at: int | None) -> LateState:
    """Return a state of the parts, each of which is an end and a read."""
    ends, reads = zip(*parts, strict=True)
    return LateState(start, ends, reads, 5, ends[0], known, snapshot_at)


def ascending(starts: list[int]) -> tuple[int, ...]:
    """Return the starts of generations in order."""
    return tuple(sorted(set(starts)))


keys = st.builds(
    key,
    st.integers(-3, 12),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.binary(min_size=8, max_size=8),
)
marks = st.dictionaries(
    st.sampled_from(STREAMS), st.builds(Mark, st.none() | keys, st.frozensets(keys, max_size=3))
)
optional = st.sampled_from([None, BEGINNING]) | st.integers(0, timeuuid.MAX_MICROS)
histories = st.builds(
    lambda changes, logs: TtlHistory(sorted(changes), logs),
    st.lists(st.tuples(st.integers(0, timeuuid.MAX_MICROS), st.integers(0, 1 << 31)), max_size=3),
    st.lists(st.uuids(), max_size=2),
)
tokens = st.integers(MIN_TOKEN, MAX_TOKEN)
snapshots = st.builds(
    SnapshotProgress,
    st.integers(BASE, BASE + 9),
    optional,
    st.builds(TokenRanges, st.lists(st.builds(TokenRange, tokens, tokens), max_size=4)),
    st.integers(0, 1 << 40),
)
moments = st.integers(0, timeuuid.MAX_MICROS)
known = st.builds(KnownGenerations, moments, st.lists(moments, max_size=3).map(ascending))
late_states = st.builds(
    late_state,
    st.just(BEGINNING) | moments,
    st.lists(st.tuples(moments, moments), min_size=1, max_size=3),
    st.frozensets(st.tuples(st.sampled_from(STREAMS), keys), max_size=3),
    st.none() | moments,
)
checkpoints = st.builds(
    Checkpoint,
    st.integers(BASE, BASE + 9),
    st.none() | known,
    marks,
    st.none() | late_states,
    st.none() | st.uuids(),
    histories,
    st.none() | snapshots,
)


def times(mark: Mark) -> list[int]:
    """Return the write times of all rows that a mark lists."""
    return [
        key.micros for key in (*mark.rows, *([mark.acked_through] if mark.acked_through else []))
    ]


class Model:
    """A reference model of a store."""

    def __init__(self) -> None:
        self.kept: dict[CheckpointName, Checkpoint] = {}

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        before = self.kept[name].marks if name in self.kept else {}
        marks = {
            stream: mark
            for stream, mark in {**before, **checkpoint.marks}.items()
            if any(time >= checkpoint.position for time in times(mark))
        }
        self.kept[name] = evolve(checkpoint, marks=marks)

    def load(self, name: CheckpointName) -> Checkpoint | None:
        if (kept := self.kept.get(name)) is None:
            return None
        marks = {}
        for stream, mark in kept.marks.items():
            last = mark.acked_through
            last = last if last and last.micros >= kept.position else None
            rows = frozenset(key for key in mark.rows if key.micros >= kept.position)
            if last or rows:
                marks[stream] = Mark(last, rows)
        return evolve(kept, marks=marks)


def test_a_store_returns_what_was_saved(open_store: Callable[[], CheckpointStore]) -> None:
    """A save replaces its streams' marks, drops obsolete ones, and changes no other checkpoint."""
    runs = iter(range(1_000_000))

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.store, self.model, self.run = open_store(), Model(), f"run {next(runs)}"

        def own(self, name: CheckpointName) -> CheckpointName:
            return evolve(name, application=f"{name.application} {self.run}")

        @rule(name=st.sampled_from(NAMES), checkpoint=checkpoints)
        def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
            self.store.save(self.own(name), checkpoint)
            self.model.save(self.own(name), checkpoint)

        @rule()
        def reopen(self) -> None:
            self.store = open_store()

        @invariant()
        def loads_what_was_saved(self) -> None:
            for name in NAMES:
                assert self.store.load(self.own(name)) == self.model.load(self.own(name))

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=8,
            stateful_step_count=12,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
def test_many_marks_are_kept_whole(open_store: Callable[[], CheckpointStore]) -> None:
    """More marks than fit in one mutation are saved and loaded completely."""
    marks = {
        StreamId.from_parts(token, 0, 0): Mark(
            key(5), frozenset(key(time, seq) for time in range(10, 20) for seq in range(10))
        )
        for token in range(200)
    }
    open_store().save(NAMES[0], Checkpoint(BASE, None, marks))
    assert open_store().load(NAMES[0]) == Checkpoint(BASE, None, marks)
    open_store().save(NAMES[0], Checkpoint(BASE + 15))
    loaded = open_store().load(NAMES[0])
    assert loaded is not None
    rows = frozenset(key(time, seq) for time in range(15, 20) for seq in range(10))
    assert loaded.marks == dict.fromkeys(marks, Mark(None, rows))


def test_threads_may_save_at_once(open_store: Callable[[], CheckpointStore]) -> None:
    """Threads may save at the same time under different names."""
    store = open_store()
    names = [CheckpointName("app", TableName("ks", f"t{number}")) for number in range(4)]

    def work(name: CheckpointName) -> None:
        for step in range(10):
            store.save(name, Checkpoint(BASE + step, None, {STREAMS[0]: Mark(key(step))}))

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = Checkpoint(BASE + 9, None, {STREAMS[0]: Mark(key(9))})
    assert [store.load(name) for name in names] == [expected] * 4
