"""Following, on a simulated log: the laws, with clock and cluster moved by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_reader.config import ReadConfig
from cdc_reader.generation import StreamGroup
from cdc_reader.ids import StreamId
from cdc_reader.log_reader import LogReader
from cdc_reader.task import Task
from cdc_reader.testing.clock import ManualClock
from cdc_reader.window import Window

SECOND = 1_000_000
CONFIG = ReadConfig(
    window=timedelta(seconds=10),
    confidence_window=timedelta(seconds=30),
    poll_interval=timedelta(seconds=5),
    chunk_size=2,
    in_flight=3,
)


@define(slots=False)
class Cluster:
    """A log as a set of rows (stream, time, arrival), and generations that become visible."""

    clock: ManualClock
    starts: dict[int, int] = field(factory=dict)  # start -> when it becomes visible
    vnodes: int = 3
    rows: list[tuple[StreamId, int, int]] = field(factory=list)
    tasks: list[Task] = field(factory=list)
    started: int = 0
    drained: int = 0
    most_under_way: int = 0

    def timestamps(self) -> Sequence[int]:
        return [start for start, seen in self.starts.items() if seen <= self.clock.now()]

    def groups(self, start: int) -> Sequence[StreamGroup]:
        return tuple(
            StreamGroup(v, (stream_of(start, v, 0), stream_of(start, v, 1)))
            for v in range(self.vnodes)
        )

    def write(self, at: int, key: int, arrival: int | None = None) -> None:
        """A row with write time `at`, in the stream that the server would choose."""
        start = max(start for start in self.starts if start <= at)
        stream = stream_of(start, key % 3, key // 3 % 2)
        self.rows.append((stream, at, at if arrival is None else arrival))

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        self.tasks.append(task)
        self.started += 1
        self.most_under_way = max(self.most_under_way, self.started - self.drained)
        return self._batches(task)

    def _batches(self, task: Task) -> Iterator[pa.RecordBatch]:
        for stream in task.streams:
            found = sorted(
                time
                for owner, time, arrival in self.rows
                if owner == stream and time in task.window and arrival <= self.clock.now()
            )
            if found:
                yield pa.record_batch({"stream": [stream] * len(found), "time": found})
        self.drained += 1


def stream_of(start: int, vnode: int, shard: int) -> StreamId:
    """The stream of a generation's vnode and shard."""
    return StreamId.from_parts(vnode * 10 + shard, start // SECOND, vnode)


def rows_of(batch: pa.RecordBatch) -> list[tuple[bytes, int]]:
    """A batch as pairs of stream and time."""
    return [(row["stream"], row["time"]) for row in batch.to_pylist()]


def follow(
    cluster: Cluster, start: int, until: Callable[[int], bool]
) -> tuple[list[Window], list[tuple[bytes, int]]]:
    """The complete windows and all rows, up to the first position of which `until` holds."""
    reader = LogReader(cluster, cluster, cluster.clock, CONFIG)
    windows, rows = [], []
    for delivery in reader.follow(start):
        if delivery.batch is not None:
            rows += rows_of(delivery.batch)
        else:
            windows.append(delivery.window)
            if until(delivery.position):
                reader.stop()
    return windows, rows


EVENTS = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 5), st.integers(0, 29)), max_size=40
)


@settings(deadline=None)
@given(
    EVENTS,
    st.lists(st.tuples(st.integers(1, 400), st.integers(-60, 29)), max_size=3),
    st.lists(st.integers(1, 15), max_size=4),
)
def test_following_delivers_each_row_once_whatever_restarts(
    events: list[tuple[int, int, int]],
    switches: list[tuple[int, int]],
    restarts: list[int],
) -> None:
    """Rows late by less than the confidence window, generations announced early or late by
    less than it, and restarts from the last complete window, lose and repeat nothing.
    """
    cluster = Cluster(ManualClock(0), starts={0: 0})
    for at, delay in switches:
        cluster.starts.setdefault(at * SECOND, (at + delay) * SECOND)
    for at, key, delay in events:
        cluster.write(at * SECOND, key, (at + delay) * SECOND)
    position, windows, rows = 0, [], []
    for stop_after in [*restarts, 10_000]:
        done = 0

        def until(reached: int, limit: int = stop_after) -> bool:
            nonlocal done
            done += 1
            return done >= limit or reached > 401 * SECOND

        more_windows, more_rows = follow(cluster, position, until)
        windows += more_windows
        rows += more_rows
        position = windows[-1].end
        if position > 401 * SECOND:
            break
    assert all(first.end == second.start for first, second in pairwise(windows))
    assert sorted(rows) == sorted((stream, at) for stream, at, _ in cluster.rows)
    for stream in {stream for stream, _ in rows}:
        times = [at for owner, at in rows if owner == stream]
        assert times == sorted(times)


def test_no_window_passes_now_less_the_confidence_window() -> None:
    """Not even right after a sleep."""
    cluster = Cluster(ManualClock(100 * SECOND), starts={0: 0})
    reader = LogReader(cluster, cluster, cluster.clock, CONFIG)
    for delivery in reader.follow(0):
        assert delivery.window.end <= cluster.clock.now() - 30 * SECOND
        if delivery.position > 500 * SECOND:
            reader.stop()


class SleeplessClock(ManualClock):
    def sleep(self, micros: int, wake: threading.Event) -> None:
        raise AssertionError((micros, wake))


def test_it_does_not_sleep_while_behind() -> None:
    """A day of log, read while the clock stands still, is read without a pause."""
    cluster = Cluster(SleeplessClock(86_400 * SECOND), starts={0: 0})
    windows = []
    reader = LogReader(cluster, cluster, cluster.clock, CONFIG)
    for delivery in reader.follow(0):
        windows.append(delivery.window)
        if delivery.position == (86_400 - 30) * SECOND:
            break
    assert len(windows) < 20


def test_it_waits_for_the_first_generation() -> None:
    """It may be announced after it began; a position that moved on before would lose rows."""
    cluster = Cluster(ManualClock(100 * SECOND), starts={5 * SECOND: 180 * SECOND})
    cluster.write(6 * SECOND, 0)
    windows, rows = follow(cluster, 0, lambda position: position > 20 * SECOND)
    assert windows[0] == Window(0, 5 * SECOND)
    assert [at for _, at in rows] == [6 * SECOND]


def test_rows_of_one_key_come_in_order_across_a_switch() -> None:
    """The older generation's part of a window is read first."""
    cluster = Cluster(ManualClock(200 * SECOND), starts={0: 0, 15 * SECOND: 0})
    for at in (12, 14, 15, 18):
        cluster.write(at * SECOND, 0)
    _, rows = follow(cluster, 0, lambda position: position > 30 * SECOND)
    assert [at // SECOND for _, at in rows] == [12, 14, 15, 18]


def test_several_reads_are_under_way_but_never_more_than_allowed() -> None:
    """The bound on memory: a page or two for each."""
    cluster = Cluster(ManualClock(200 * SECOND), starts={0: 0})
    reader = LogReader(cluster, cluster, cluster.clock, CONFIG)
    tasks = reader.plan(Window(0, 100 * SECOND)) * 4
    assert list(reader.read(tasks)) == []
    assert cluster.most_under_way == CONFIG.in_flight


def test_a_bounded_read_takes_all_that_is_there() -> None:
    """Without ends, also what has not settled, and streams of a generation yet to begin."""
    cluster = Cluster(ManualClock(10 * SECOND), starts={0: 0, 12 * SECOND: 0})
    for at in (1, 9, 13):
        cluster.write(at * SECOND, 0, arrival=0)
    reader = LogReader(cluster, cluster, cluster.clock, CONFIG)
    times = [at for batch in reader.batches(None, None) for _, at in rows_of(batch)]
    assert times == [1 * SECOND, 9 * SECOND, 13 * SECOND]
    some = [at for batch in reader.batches(2 * SECOND, 13 * SECOND) for _, at in rows_of(batch)]
    assert some == [9 * SECOND]
    assert reader.first_timestamp() == 0


def test_a_stopped_window_is_not_declared_complete() -> None:
    """What was not delivered is delivered after the restart."""
    cluster = Cluster(ManualClock(200 * SECOND), starts={0: 0})
    for key in range(6):
        cluster.write(SECOND, key)
    reader = LogReader(cluster, cluster, cluster.clock, CONFIG)
    deliveries = []
    for delivery in reader.follow(0):
        deliveries.append(delivery)
        reader.stop()
    assert [delivery.complete for delivery in deliveries] == [False]


def test_a_generation_without_streams_is_skipped_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing can have been written in it."""
    cluster = Cluster(ManualClock(200 * SECOND), starts={0: 0}, vnodes=0)
    reader = LogReader(cluster, cluster, cluster.clock, CONFIG)
    assert reader.plan(Window(0, SECOND)) == []
    assert "generation_without_streams" in caplog.text
