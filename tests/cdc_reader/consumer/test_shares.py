"""Pages with many changes: crashes, failures and stops while workers handle parts of a page."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.config import ConnectionConfig
from cdc_reader.consumer import CdcConsumer, ConsumerConfig, runtime
from cdc_reader.consumer.handling import Together
from cdc_reader.cql.names import TableName
from cdc_reader.errors import HandlerError
from cdc_reader.metrics import CHANGES, OUTSTANDING, ROWS, MemoryMetrics
from cdc_reader.reading.cursor import Checkpoint, Mark, RowKey
from cdc_reader.streams.stream import StreamId
from tests.cdc_reader.consumer.conftest import READ, now

Write = Callable[..., None]
ROWS_WRITTEN, PARTITIONS = 120, 12
LARGE = evolve(READ, fetch_size=1_000, window=timedelta(days=1))
"""Each query returns all of its rows in one page."""
OFTEN = timedelta(milliseconds=5)
NEVER = timedelta(hours=1)


class Store(MemoryCheckpoints):
    """A store that can wait until changes passed to `tell` are saved as handled."""

    def __init__(self, table: str) -> None:
        super().__init__()
        self._name = CheckpointName("app", TableName.parse(table))
        self._rows: dict[int, tuple[StreamId, list[RowKey]]] = {}
        self._saved = threading.Event()

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        super().save(name, checkpoint)
        self._saved.set()

    def tell(self, change: Change) -> None:
        """Remember the rows of a change."""
        keys = [RowKey(change.time.bytes, seq) for seq in change.seqs]
        self._rows[number_of(change)] = change.stream, keys

    def after_crash(self, handled: set[int]) -> MemoryCheckpoints:
        """Wait until these changes are saved as handled, and return a copy of the store."""
        while not all(map(self._has, handled)):
            self._saved.wait()
            self._saved.clear()
        copy = MemoryCheckpoints()
        copy.save(self._name, self._checkpoint)
        return copy

    @property
    def _checkpoint(self) -> Checkpoint:
        found = self.load(self._name)
        assert found is not None
        return found

    def _has(self, number: int) -> bool:
        stream, keys = self._rows[number]
        saved = self._checkpoint
        mark = saved.marks.get(stream, Mark())
        return all(key.micros < saved.position or key in mark for key in keys)


@pytest.fixture
def consume(connection: ConnectionConfig, table: str, write: Write) -> Callable[..., CdcConsumer]:
    """Write rows, and return a function that creates consumers of the rows."""
    write(table, ROWS_WRITTEN, partitions=PARTITIONS)
    end = now()

    def make(handler: Callable[[Change], object], **options: Any) -> CdcConsumer:
        settings: dict[str, Any] = {
            "application": "app",
            "end": end,
            "read": LARGE,
            "checkpoints": MemoryCheckpoints(),
        }
        return CdcConsumer(connection, table, handler, **(settings | options))

    return make


def number_of(change: Change) -> int:
    """Return the number of the row that the change inserted."""
    number: int = change.key["c"]
    return number


def rest(consume: Callable[..., CdcConsumer], store: MemoryCheckpoints) -> list[int]:
    """Return the numbers of the rows that the next run handles, in order."""
    found: list[int] = []
    consume(
        lambda change: found.append(number_of(change)),
        checkpoints=store,
        config=ConsumerConfig(workers=1),
    ).run()
    return found


@pytest.mark.parametrize("delivery", ["settled", "eager"])
def test_a_crash_in_the_middle_of_a_page_repeats_only_what_was_not_saved(
    consume: Callable[..., CdcConsumer], table: str, delivery: str
) -> None:
    """While a worker is busy with a page, checkpoints record the changes it has already handled."""
    store, handled, metrics = Store(table), list[int](), MemoryMetrics()
    after_crash: list[MemoryCheckpoints] = []

    def handler(change: Change) -> None:
        if len(handled) == 50:
            after_crash.append(store.after_crash(set(handled)))
        store.tell(change)
        handled.append(number_of(change))

    read = evolve(LARGE, delivery=delivery)
    config = ConsumerConfig(workers=1, checkpoint_interval=OFTEN)
    consume(handler, checkpoints=store, config=config, metrics=metrics, read=read).run()
    again = rest(consume, after_crash[0])
    assert Counter(handled[:50] + again) == Counter(range(ROWS_WRITTEN))
    assert metrics[CHANGES, TableName.parse(table)] == ROWS_WRITTEN
    assert metrics[OUTSTANDING, TableName.parse(table)] == 0


def test_a_crash_while_one_worker_hangs_repeats_only_its_changes(
    consume: Callable[..., CdcConsumer], table: str
) -> None:
    """While one worker hangs, checkpoints record each change that other workers handled."""
    workers: dict[int, str] = {}

    def find(change: Change) -> None:
        workers[change.key["p"]] = threading.current_thread().name

    consume(find, application="other", config=ConsumerConfig(workers=3)).run()
    others = {n for n in range(ROWS_WRITTEN) if workers[n % PARTITIONS] != workers[0]}
    assert others
    store, handled, lock = Store(table), set[int](), threading.Lock()
    are_done, after_crash = threading.Event(), list[MemoryCheckpoints]()

    def handler(change: Change) -> None:
        if threading.current_thread().name == workers[0] and not after_crash:
            are_done.wait()
            after_crash.append(store.after_crash(others))
        with lock:
            store.tell(change)
            handled.add(number_of(change))
            if handled >= others:
                are_done.set()

    config = ConsumerConfig(workers=3, checkpoint_interval=OFTEN)
    consume(handler, checkpoints=store, config=config).run()
    assert handled == set(range(ROWS_WRITTEN))
    assert Counter(rest(consume, after_crash[0])) == Counter(handled - others)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("ends_by", ["failure", "stop"])
def test_a_run_that_ends_in_the_middle_of_a_page_saves_what_was_handled(
    consume: Callable[..., CdcConsumer], ends_by: str, workers: int
) -> None:
    """After a run ends in the middle of a page, the next run handles the rest in order."""
    store, handled, lock = MemoryCheckpoints(), list[int](), threading.Lock()

    def handler(change: Change) -> None:
        with lock:
            if len(handled) >= 50:
                if ends_by == "failure":
                    raise LookupError("no such thing")
                running.stop()
            handled.append(number_of(change))

    config = ConsumerConfig(workers=workers, attempts=1, checkpoint_interval=NEVER)
    running = consume(handler, checkpoints=store, config=config)
    if ends_by == "failure":
        with pytest.raises(HandlerError, match="no such thing"):
            running.run()
        assert len(handled) == 50
    else:
        running.run()
        assert 50 < len(handled) <= 50 + workers
    again = rest(consume, store)
    assert Counter(handled + again) == Counter(range(ROWS_WRITTEN))
    for partition in range(PARTITIONS):
        numbers = [number for number in handled + again if number % PARTITIONS == partition]
        assert numbers == sorted(numbers)


def test_a_hanging_worker_bounds_what_the_others_may_do(
    consume: Callable[..., CdcConsumer], table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading waits for a hanging worker even if others are idle, so memory is bounded."""
    go, metrics, handled = threading.Event(), MemoryMetrics(), list[int]()
    lock, hanging = threading.Lock(), set[str]()

    def handler(change: Change) -> None:
        with lock:
            if not hanging:
                hanging.add(threading.current_thread().name)
        if threading.current_thread().name in hanging:
            go.wait()
        handled.append(number_of(change))

    small = evolve(LARGE, fetch_size=4)
    monkeypatch.setattr(runtime, "_MOST_CHANGES", 10)
    running = consume(handler, read=small, config=ConsumerConfig(workers=3), metrics=metrics)
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running._running._runtime._limit.is_awaited:
        thread.join(0.001)
    held = metrics[ROWS, TableName.parse(table)] - len(handled)
    go.set()
    thread.join()
    assert held <= 10 + 2 * 4  # a page in flight, and a page that waits
    assert Counter(handled) == Counter(range(ROWS_WRITTEN))


def test_a_long_page_is_handled_while_reading_waits(
    consume: Callable[..., CdcConsumer], table: str
) -> None:
    """One page may exceed the limits on changes in flight. Reading waits until it is handled."""
    metrics, rows = MemoryMetrics(), list[float]()

    def handler(_change: Change) -> None:
        rows.append(metrics[ROWS, TableName.parse(table)])

    small = evolve(LARGE, fetch_size=10)
    consume(handler, read=small, config=ConsumerConfig(max_bytes=1), metrics=metrics).run()
    assert len(rows) == ROWS_WRITTEN
    assert all(read - number <= 2 * 10 for number, read in enumerate(rows))


@pytest.mark.parametrize("bad", [None, 50])
def test_changes_may_be_handled_together(
    connection: ConnectionConfig, table: str, write: Write, bad: int | None
) -> None:
    """A handler may take several changes at a time.

    If the call fails, the handler is called with each change alone. Only a change that fails alone
    becomes a dead letter.
    """
    write(table, ROWS_WRITTEN, partitions=PARTITIONS)
    calls: list[list[int]] = []
    letters: list[int] = []

    def handle(changes: Sequence[Change]) -> None:
        numbers = [number_of(change) for change in changes]
        calls.append(numbers)
        if bad in numbers:
            raise LookupError("no such thing")

    store = MemoryCheckpoints()
    for _ in range(2):  # the second run finds that all changes are handled
        CdcConsumer(
            connection,
            table,
            Together(handle, most=16),
            dead_letter=lambda change, _error: letters.append(number_of(change)),
            application="together",
            end=now(),
            checkpoints=store,
            config=ConsumerConfig(workers=2, attempts=1),
            read=LARGE,
        ).run()
    failed = [numbers for numbers in calls if bad in numbers]
    handled = [number for numbers in calls if numbers not in failed for number in numbers]
    assert sorted(handled + letters) == list(range(ROWS_WRITTEN))
    assert letters == ([] if bad is None else [bad])
    assert 1 < max(map(len, calls)) <= 16
    for partition in range(PARTITIONS):
        of_one = [number for number in handled if number % PARTITIONS == partition]
        assert of_one == sorted(of_one)
