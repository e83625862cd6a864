"""The streams of a generation in one block of memory, even if there are millions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_reader.cql.schema import STREAM_ID
from cdc_reader.streams.generation import StreamGroup
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.planning.streams import Streams

WINDOW = Window(0, 9)
LARGE_CLUSTER = """
import resource
from cdc_reader.streams.generation import StreamGroup, Timeline
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.strategy import Strategy
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.planning.partition import partitions
from pyspark_scylla_cdc.planning.plan import divide, slices, spans
from pyspark_scylla_cdc.planning.streams import Streams
from tests.effort import calls

def groups():
    for vnode in range(25_600):
        end = -(1 << 63) + (vnode + 1) * ((1 << 64) // 25_600)
        streams = (StreamId.from_parts(end - shard, shard, vnode) for shard in range(64))
        yield StreamGroup(end, tuple(streams))

streams = Streams.of(groups())
day = 86_400_000_000

def plan():
    parts = spans(Timeline((0, day // 2)), Window(0, day), lambda _: len(streams))
    first, *_ = partitions(divide(parts, 1, 8, slices(parts, 8, 64)), lambda _: streams)
    for strategy in (Strategy.STREAMS, Strategy.RANGES):
        reads = list(first.reads(lambda _: streams, strategy, 64))

work = calls(plan)
resident = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20
print(len(streams), work, resident)
"""


def test_in_ring_order() -> None:
    """Groups and their streams may come in any order, and are stored in ring order."""
    groups = [
        StreamGroup(end, tuple(StreamId.from_parts(token, 1, 0) for token in (end, end - 1)))
        for end in (5, -3, 2)
    ]
    streams = Streams.of(groups)
    tasks = list(streams.tasks(WINDOW, 4))
    assert [stream.token for task in tasks for stream in task.streams] == [-4, -3, 1, 2, 4, 5]
    assert [len(task.streams) for task in tasks] == [4, 2]


def test_streams_are_identified_by_their_whole_ids() -> None:
    """Streams are identified by their whole ids, because several may have the same token."""
    streams = Streams.of([StreamGroup(7, tuple(StreamId.from_parts(7, n, 0) for n in (1, 2)))])
    assert [StreamId.from_parts(7, n, 0) in streams for n in range(4)] == [False, True, True, False]
    assert [StreamId.from_parts(token, 1, 0) in streams for token in (6, 8)] == [False, False]


def test_rows_of_other_streams_are_left_out() -> None:
    """A batch without rows of these streams is left out, too."""
    own, other = (StreamId.from_parts(token, 1, 0) for token in (1, 2))
    batches = [pa.record_batch({STREAM_ID: pa.array(ids)}) for ids in ([own, other], [other])]
    [rows] = Streams(own).rows(batches)
    assert rows.column(0).to_pylist() == [own]


@pytest.mark.parametrize(("count", "expected"), [(2, [0, 5]), (10, list(range(10))), (99, None)])
def test_sample(count: int, expected: list[int] | None) -> None:
    """A sample covers the whole ring, and contains each stream at most once."""
    streams = Streams(b"".join(StreamId.from_parts(token, 1, 0) for token in range(10)))
    (task,) = streams.sample(count).tasks(WINDOW, 99)
    assert [stream.token for stream in task.streams] == (expected or list(range(10)))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="how much memory is in use is asked of Linux")
def test_large_cluster() -> None:
    """The time and memory to plan a micro-batch over 1.6 million streams are bounded."""
    ran = subprocess.run(
        [sys.executable, "-c", LARGE_CLUSTER],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[4],
    )
    count, work, megabytes = ran.stdout.split()
    assert int(count) == 25_600 * 64
    assert int(work) < 2 * int(count)
    assert int(megabytes) < 400
