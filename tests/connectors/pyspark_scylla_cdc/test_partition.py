"""Spark partitions: nothing lost, nothing twice, balanced, and small on the wire."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.generation import Generation, StreamGroup
from cdc_reader.ids import StreamId
from cdc_reader.task import Task, plan
from cdc_reader.window import Window
from pyspark_scylla_cdc.partition import partitions


def generation(window: Window, vnodes: int, shards: int) -> Generation:
    """A generation of `vnodes` times `shards` streams, distinct from those of other windows."""
    groups = [
        StreamGroup(
            vnode,
            tuple(
                StreamId.from_parts(vnode, window.start * shards + shard, vnode)
                for shard in range(shards)
            ),
        )
        for vnode in range(vnodes)
    ]
    return Generation(window, groups)


def tasks(vnodes: int, shards: int) -> list[Task]:
    """The tasks of one generation, in chunks of up to 64 streams."""
    return plan([generation(Window(0, 9), vnodes, shards)], Window(0, 9), 64)


@given(
    vnodes=st.integers(1, 40),
    shards=st.integers(1, 5),
    cuts=st.lists(st.integers(1, 99), unique=True, max_size=3),
    limit=st.integers(1, 50),
)
def test_each_stream_once(vnodes: int, shards: int, cuts: list[int], limit: int) -> None:
    """Over all partitions each stream of each generation is read once, for its own time."""
    edges = [0, *sorted(cuts), 100]
    generations = [generation(Window(start, end), vnodes, shards) for start, end in pairwise(edges)]
    planned = partitions(plan(generations, Window(10, 90), 64), limit)
    read = Counter(
        (stream, task.window)
        for partition in pickle.loads(pickle.dumps(planned))
        for task in partition.tasks()
        for stream in task.streams
    )
    expected = Counter(
        (stream, part)
        for each in generations
        if not (part := each.operates.intersect(Window(10, 90))).is_empty
        for stream in each.streams()
    )
    assert read == expected
    assert len(planned) <= limit


@pytest.mark.parametrize("limit", [1, 2, 7, 32])
def test_as_many_as_asked_for(limit: int) -> None:
    """With enough streams there are exactly as many partitions as the limit allows."""
    assert len(partitions(tasks(16, 2), limit)) == limit


def test_no_more_than_streams() -> None:
    """Three streams make three partitions, however many were allowed."""
    assert len(partitions(tasks(3, 1), 8)) == 3


def test_no_tasks() -> None:
    """Nothing to read makes no partition."""
    assert partitions([], 8) == []


def test_size_on_the_wire() -> None:
    """A partition costs little more than the 16 bytes of each of its streams."""
    (planned,) = partitions(tasks(1_000, 4), 1)
    assert len(pickle.dumps(planned)) < 4_000 * 17 + 1_000
    assert repr(planned) == "LogPartition(tasks=63, streams=4000)"
