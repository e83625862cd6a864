"""Spark partitions: the tasks of a plan, small on the wire."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.generation import StreamGroup, Timeline
from cdc_reader.ids import StreamId
from cdc_reader.task import RangeTask, Task
from cdc_reader.window import Window
from pyspark_scylla_cdc.option_table import ReadStrategy
from pyspark_scylla_cdc.partition import INLINE, LogPartition, partitions
from pyspark_scylla_cdc.plan import divide, spans
from pyspark_scylla_cdc.streams import Streams

WINDOW = Window(0, 9)


def streams_of(tokens: list[int]) -> Streams:
    """A generation with a stream for each token, two to a group."""
    ids = [StreamId.from_parts(token, number, 0) for number, token in enumerate(tokens)]
    groups = [StreamGroup(at, tuple(ids[at : at + 2])) for at in range(0, len(ids), 2)]
    return Streams.of(groups)


def planned(streams: Streams, count: int) -> list[LogPartition]:
    """The partitions of one window, as executors get them."""
    parts = spans(Timeline((0,)), WINDOW, lambda _: len(streams))
    made = partitions(divide(parts, 1, count), lambda _: streams)
    return list(pickle.loads(pickle.dumps(made)))


def not_loaded(generation: int) -> Streams:
    """Reading a generation, where that must not be needed."""
    raise AssertionError(f"generation {generation} was read")


@pytest.mark.parametrize("size", [50, INLINE + 1])
@pytest.mark.parametrize("count", [1, 3])
def test_every_stream_in_order(size: int, count: int) -> None:
    """Few streams travel with the partition, many are read where they are wanted."""
    streams = streams_of(list(range(size)))
    load = not_loaded if size <= INLINE else (lambda _: streams)
    found = [
        stream
        for partition in planned(streams, count)
        for task in partition.tasks(load, ReadStrategy.STREAMS, 64)
        if isinstance(task, Task) and task.window == WINDOW and len(task.streams) <= 64
        for stream in task.streams
    ]
    assert b"".join(found) == streams.raw


@given(
    tokens=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
    count=st.integers(1, 8),
)
def test_ranges_are_the_ring(tokens: list[int], count: int) -> None:
    """By ranges, the partitions cover the ring once, tokens that repeat or are last too."""
    streams = streams_of(tokens)
    tasks = [
        task
        for partition in planned(streams, count)
        for task in partition.tasks(lambda _: streams, ReadStrategy.RANGES, 64)
    ]
    edges = [(task.start, task.end) for task in tasks if isinstance(task, RangeTask)]
    assert edges[0][0] == -(2**63)
    assert edges[-1][1] == 2**63 - 1
    assert all(one[1] == next_one[0] for one, next_one in pairwise(edges))


def test_size_on_the_wire() -> None:
    """A partition costs the 16 bytes of each of its streams; of many streams, next to nothing."""
    few, many = streams_of(list(range(4_000))), streams_of(list(range(INLINE + 1)))
    (small,), (large,) = planned(few, 1), planned(many, 1)
    assert len(pickle.dumps(small)) < 4_000 * 16 + 500
    assert len(pickle.dumps(large)) < 500
    assert repr(small) == "LogPartition(spans=1, streams=4000)"
