"""The cost of reading one window with each strategy, on the embedded or a real server."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

from cassandra.cluster import Cluster
from cassandra.concurrent import execute_concurrent_with_args

from cdc_reader._time import FOREVER
from cdc_reader.cluster import Connection
from cdc_reader.cluster.log import CdcTable
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.reading.windows.fetch import read_tasks
from cdc_reader.reading.windows.in_flight import InFlight
from cdc_reader.reading.windows.planner import Chunking
from cdc_reader.streams.generation import Generation
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window
from tests.benchmarks.figure import Figure
from tests.benchmarks.serving import KEYSPACE, serving
from tests.benchmarks.turns import take_turns
from tests.cdc_reader.support.tuned import tuned

VNODES, SHARDS = 256, (2, 16)
ROWS_A_STREAM, IN_FLIGHT = 5, 32
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
Tasks = Sequence[Task | RangeTask]


def figures(times: int, server: str | None = None) -> Iterator[Figure]:
    """Measure milliseconds per window. The embedded server has 512, then 4,096 streams."""
    if server is not None:
        yield from _figures(ConnectionConfig(server), times)
        return
    for shards in SHARDS:
        with serving(vnodes=VNODES, shards=shards) as served:
            yield from _figures(served.config, times)


def _figures(config: ConnectionConfig, times: int) -> Iterator[Figure]:
    connection = Connection(config, ReadConfig())
    with _table(config) as (name, write):
        table = CdcTable(connection, name)
        source = table.source(table.schema())
        generation = _newest(table)
        streams = sum(1 for _ in generation.streams())
        now = time.time_ns() // 1_000
        none, all_rows = Window(now - 2_000_000, now - 1_000_000), Window(now, FOREVER)

        def measured(state: str, window: Window) -> Iterator[Figure]:
            planned = ways(generation, window)
            read = {way: _reading(source, tasks) for way, tasks in planned.items()}
            for way, turn in take_turns(read, times).items():
                column = f"{streams:,} streams, {state}"
                yield Figure(
                    f"window_{streams}_{state.replace(' ', '_')}_{way.replace(' ', '_')}",
                    turn.wall * 1_000,
                    "ms",
                    note=f"{len(planned[way])} queries",
                    cell=(way, column),
                )

        yield from measured("log empty", none)
        write(range(streams * ROWS_A_STREAM))
        yield from measured("window empty", none)
        yield from measured("all rows", all_rows)
    connection.close()


def _reading(source: object, tasks: Tasks) -> Callable[[], int]:
    def read() -> int:
        with tuned(in_flight=IN_FLIGHT):
            found = read_tasks(source, tasks, InFlight())  # type: ignore[arg-type]
            return sum(batch.num_rows for _, batch in found)

    return read


def ways(generation: Generation, window: Window) -> Mapping[str, Tasks]:
    """Return the tasks that read a window with each strategy. All strategies read the same rows."""
    ends = [_LOWEST, *(group.range_end for group in generation.groups), _HIGHEST]
    return {
        "one stream": [Task(window, (stream,)) for stream in generation.streams()],
        "one vnode": [Task(window, group.streams) for group in generation.groups],
        "64 streams": [Task(window, chunk) for chunk in Chunking([*generation.streams()], 64)],
        "one range": _ranges(window, ends),
        "32 ranges": _ranges(window, [*ends[:-1:32], _HIGHEST]),
        "whole ring": [RangeTask(window, _LOWEST, _HIGHEST)],
    }


def _ranges(window: Window, ends: Iterable[int]) -> Tasks:
    return [RangeTask(window, start, end) for start, end in pairwise(ends)]


def _newest(table: CdcTable) -> Generation:
    start = max(table.generations.timestamps())
    return Generation(Window(start, FOREVER), tuple(table.generations.groups(start)))


@contextmanager
def _table(
    config: ConnectionConfig,
) -> Iterator[tuple[TableName, Callable[[Iterable[int]], None]]]:
    """Yield a new table and a function that writes keys to it. The table is dropped at the end."""
    [(host, port)] = config.endpoints()
    name = TableName(KEYSPACE, f"ways_{random.randrange(10**9)}")
    with Cluster([host], port=port, protocol_version=4) as cluster:
        session = cluster.connect()
        session.execute(
            f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        session.execute(
            f"CREATE TABLE {name.cql} (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}"
        )
        insert = session.prepare(f"INSERT INTO {name.cql} (pk, v) VALUES (?, 1)")

        def write(keys: Iterable[int]) -> None:
            execute_concurrent_with_args(session, insert, [(key,) for key in keys])

        try:
            yield name, write
        finally:
            session.execute(f"DROP TABLE {name.cql}")
