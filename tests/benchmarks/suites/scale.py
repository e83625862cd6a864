"""Large clusters: reading a generation of 1.6 million streams, and planning a window."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

from cdc_reader.cluster import Connection
from cdc_reader.cluster.log import CdcTable
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.reading.windows.planner import Planner
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window
from tests.benchmarks.apart import apart, peak_mb
from tests.benchmarks.figure import Figure
from tests.benchmarks.serving import KEYSPACE, serving

NODES, VNODES, SHARDS = 100, 256, 64
STREAMS = NODES * VNODES * SHARDS
TABLE = "scale"
_DESCRIPTIONS = ("system_distributed", "cdc_streams_descriptions_v2")
_ROWS_A_PAGE = 800
"""The number of rows that fill 1 MiB, where the server ends a page."""


def figures(times: int) -> Iterator[Figure]:
    """Measure the time and memory to plan a large generation, and the queries of an idle window."""
    with serving() as served:
        served.execute(
            f"CREATE TABLE {KEYSPACE}.{TABLE} (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
        )
        served.replay_pages(*_DESCRIPTIONS, description_pages())
        found = [apart(_plan, served.config) for _ in range(max(times // 2, 1))]
    seconds, before, peak, streams, queries = sorted(found)[len(found) // 2]
    assert streams == STREAMS, streams
    note = f"{STREAMS:,} streams, from the wire to a plan"
    yield Figure("scale_streams", seconds, "s", at_most=20, note=note)
    memory = f"{before:.0f} MB before"
    yield Figure("scale_streams_memory", peak, "MB", at_most=400, note=memory)
    yield Figure("scale_idle", queries, "queries", at_most=25_600, note="a window on them")


def _plan(config: ConnectionConfig) -> tuple[float, float, float, int, int]:
    """Plan a window of one second, and measure the planning.

    Return the seconds, the peak memory before and after (MB), and the numbers of streams and
    queries.
    """
    connection = Connection(config, ReadConfig())
    table = CdcTable(connection, TableName(KEYSPACE, TABLE))
    planner = Planner(table.generations)
    planner.use(Timeline(tuple(table.generations.timestamps())))
    before, start, now = peak_mb(), time.perf_counter(), time.time_ns() // 1_000
    tasks = planner.plan(Window(now, now + 1_000_000))
    seconds = time.perf_counter() - start
    peak = peak_mb()
    streams = sum(len(task.streams) for task in tasks)
    connection.close()
    return seconds, before, peak, streams, len(tasks)


def description_pages() -> list[bytes]:
    """Return the pages of `cdc_streams_descriptions_v2` that describe the generation."""
    ranges = NODES * VNODES
    return [
        _page(range(first, min(first + _ROWS_A_PAGE, ranges)), ranges)
        for first in range(0, ranges, _ROWS_A_PAGE)
    ]


def _page(numbers: range, ranges: int) -> bytes:
    header = struct.pack(">iii", 2, 1, 2) + _text(_DESCRIPTIONS[0]) + _text(_DESCRIPTIONS[1])
    columns = _text("range_end") + b"\0\x02" + _text("streams") + b"\0\x22\0\x03"
    rows = b"".join(_row(number, ranges) for number in numbers)
    return header + columns + struct.pack(">i", len(numbers)) + rows


def _row(number: int, ranges: int) -> bytes:
    width = 2**64 // ranges
    end = -(2**63) + (number + 1) * width
    ids = b"".join(
        struct.pack(">iqQ", 16, end - shard, number << 30 | number << 4 | 1)
        for shard in range(SHARDS)
    )
    streams = struct.pack(">i", SHARDS) + ids
    return struct.pack(">iq", 8, end) + struct.pack(">i", len(streams)) + streams


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
