"""Streams of a generation in one piece: of millions too."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cdc_reader.generation import StreamGroup
from cdc_reader.ids import StreamId
from cdc_reader.window import Window
from pyspark_scylla_cdc.streams import Streams

WINDOW = Window(0, 9)
LARGE_CLUSTER = """
import resource, time
from cdc_reader.generation import StreamGroup, Timeline
from cdc_reader.ids import StreamId
from cdc_reader.window import Window
from pyspark_scylla_cdc.log import plan
from pyspark_scylla_cdc.option_table import ReadStrategy
from pyspark_scylla_cdc.partition import partitions
from pyspark_scylla_cdc.plan import divide, spans
from pyspark_scylla_cdc.streams import Streams

def groups():
    for vnode in range(25_600):
        end = -(1 << 63) + (vnode + 1) * ((1 << 64) // 25_600)
        streams = (StreamId.from_parts(end - shard, shard, vnode) for shard in range(64))
        yield StreamGroup(end, tuple(streams))

streams = Streams.of(groups())
began = time.perf_counter()
parts = spans(Timeline((0, 50)), Window(0, 100), lambda _: len(streams))
first, *_ = partitions(divide(parts, 1, 8), lambda _: streams)
for strategy in ReadStrategy:
    tasks = list(first.tasks(lambda _: streams, strategy, 64))
seconds = time.perf_counter() - began
resident = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20
print(len(streams), seconds, resident)
"""


def test_in_ring_order() -> None:
    """Groups come in any order, streams are kept in that of the ring."""
    groups = [StreamGroup(end, (StreamId.from_parts(end, 1, 0),)) for end in (5, -3, 2)]
    streams = Streams.of(groups)
    tasks = list(streams.tasks(WINDOW, 2))
    assert [stream.token for task in tasks for stream in task.streams] == [-3, 2, 5]
    assert [len(task.streams) for task in tasks] == [2, 1]


@pytest.mark.parametrize(("count", "expected"), [(2, [0, 5]), (10, list(range(10))), (99, None)])
def test_sample(count: int, expected: list[int] | None) -> None:
    """A sample is from all around the ring, each stream once."""
    streams = Streams(b"".join(StreamId.from_parts(token, 1, 0) for token in range(10)))
    (task,) = streams.sample(count).tasks(WINDOW, 99)
    assert [stream.token for stream in task.streams] == (expected or list(range(10)))


@pytest.mark.skipif(sys.platform != "linux", reason="how much memory is in use is asked of Linux")
def test_large_cluster() -> None:
    """A micro-batch over 1.6 million streams is planned, and its tasks made, in bounds."""
    ran = subprocess.run(
        [sys.executable, "-c", LARGE_CLUSTER], capture_output=True, text=True, check=True
    )
    count, seconds, megabytes = ran.stdout.split()
    assert int(count) == 25_600 * 64
    assert float(seconds) < 2
    assert int(megabytes) < 400
