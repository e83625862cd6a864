"""Spark partitions: the queries of a plan, in a compact form."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import Clock, SystemClock
from cdc_reader.cql.schema import STREAM_ID
from cdc_reader.streams.generation import StreamGroup, Timeline
from cdc_reader.streams.strategy import Strategy
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.executors.log import task_rows
from pyspark_scylla_cdc.planning.partition import INLINE, LogPartition, LogRead, partitions
from pyspark_scylla_cdc.planning.plan import divide, spans
from pyspark_scylla_cdc.planning.streams import Streams

WINDOW = Window(0, 9)


@frozen
class Full:
    """A source in which each stream has one row per microsecond."""

    streams: tuple[StreamId, ...]

    def read(
        self, task: Task | RangeTask, *, clock: Clock | None = None
    ) -> Iterator[pa.RecordBatch]:
        del clock
        found = [stream for stream in self.streams if _is_asked(task, stream)]
        ids = [bytes(stream) for stream in found for _ in range(task.window.length)]
        times = [*range(task.window.start, task.window.end)] * len(found)
        if ids:
            yield pa.record_batch({STREAM_ID: ids, "time": times})


def _is_asked(task: Task | RangeTask, stream: StreamId) -> bool:
    if isinstance(task, RangeTask):
        return task.start < stream.token <= task.end
    return stream in task.streams


def streams_of(tokens: list[int]) -> Streams:
    """Return a generation with a stream for each token and two streams per group."""
    ids = [StreamId.from_parts(token, number, 0) for number, token in enumerate(tokens)]
    groups = [StreamGroup(at, tuple(ids[at : at + 2])) for at in range(0, len(ids), 2)]
    return Streams.of(groups)


def planned(streams: Streams, count: int, slices: int = 1) -> list[LogPartition]:
    """Return the partitions of one window, as executors receive them."""
    parts = spans(Timeline((0,)), WINDOW, lambda _: len(streams))
    made = partitions(divide(parts, 1, count, slices), lambda _: streams)
    return list(pickle.loads(pickle.dumps(made)))


def not_loaded(generation: int) -> Streams:
    """Fail, because no generation may be read."""
    raise AssertionError(f"generation {generation} was read")


@pytest.mark.parametrize("size", [50, INLINE + 1])
@pytest.mark.parametrize("count", [1, 3])
def test_every_stream_in_order(size: int, count: int) -> None:
    """The partitions read all streams in order.

    A partition contains up to `INLINE` streams. If there are more, the executor loads them.
    """
    streams = streams_of(list(range(size)))
    load = not_loaded if size <= INLINE else (lambda _: streams)
    asked: list[StreamId] = []
    for partition in planned(streams, count):
        reads = list(partition.reads(load, Strategy.STREAMS, 64))
        assert len(reads) == partition.queries(64)
        for task in (read.task for read in reads):
            assert isinstance(task, Task)
            assert task.window == WINDOW
            assert len(task.streams) <= 64
            asked += task.streams
    assert b"".join(asked) == streams.raw


@given(
    tokens=st.lists(
        st.integers(-9, 9) | st.sampled_from([-(2**63) + 1, 2**63 - 1]), min_size=1, max_size=12
    ),
    count=st.integers(1, 8),
    slices=st.integers(1, 8),
    others=st.lists(st.integers(-9, 9), max_size=5),
)
def test_streams_and_ranges_have_the_same_rows(
    tokens: list[int], count: int, slices: int, others: list[int]
) -> None:
    """Each partition yields the same rows, whether it is read by ranges or by streams.

    This holds even if tokens repeat or streams of another generation lie between the partition's
    streams.
    """
    streams = streams_of(tokens)
    own = [stream for task in streams.tasks(WINDOW, 99) for stream in task.streams]
    source = Full((*own, *(StreamId.from_parts(token, 2**37, 1) for token in others)))
    for partition in planned(streams, count, min(slices, count)):
        by_streams = partition.reads(not_loaded, Strategy.STREAMS, 64)
        by_ranges = partition.reads(not_loaded, Strategy.RANGES, 64)
        assert rows(by_ranges, source) == rows(by_streams, source)


def rows(reads: Iterator[LogRead], source: Full) -> list[tuple[bytes, int]]:
    """Return the rows that these queries find, sorted."""
    found = [
        row
        for read in reads
        for batch in task_rows(source, read, SystemClock())
        for row in batch.to_pylist()
    ]
    return sorted((row[STREAM_ID], row["time"]) for row in found)


def test_size_on_the_wire() -> None:
    """A pickled partition takes 16 bytes per stream or, with many streams, almost nothing."""
    few, many = streams_of(list(range(4_000))), streams_of(list(range(INLINE + 1)))
    (small,), (large,) = planned(few, 1), planned(many, 1)
    assert len(pickle.dumps(small)) < 4_000 * 16 + 500
    assert len(pickle.dumps(large)) < 500
    assert repr(small) == f"LogPartition({small.window}, spans=1, streams=4000)"
