"""The number of pages in a window determines the chunks of the next window."""

from __future__ import annotations

import pytest

from cdc_reader._time import BEGINNING, FOREVER, SystemClock
from cdc_reader.cluster import CdcTable
from cdc_reader.config import ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.windows.fetch import CurrentLog
from cdc_reader.reading.windows.planner import Planner
from cdc_reader.reading.windows.window_reader import WindowReader
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.in_process import InProcessConnection

_EVER = Window(BEGINNING, FOREVER)


def _queries(config: ReadConfig, values: list[bytes]) -> list[int]:
    """Return the number of queries for each of two equal windows, read one after the other."""
    server = EmbeddedScylla(vnodes=1, shards=4)
    server.execute(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    server.execute("CREATE TABLE ks.t (p int PRIMARY KEY, v blob) WITH cdc = {'enabled': true}")
    for key, value in enumerate(values):
        server.execute(f"INSERT INTO ks.t (p, v) VALUES ({key}, ?)", [value])
    table = CdcTable(InProcessConnection(server, config), TableName("ks", "t"))
    log = CurrentLog(table, Checkpoint(BEGINNING))
    planner = Planner(table.generations)
    planner.use(Timeline(tuple(table.generations.timestamps())))
    reader = WindowReader(log, planner, SystemClock(), config)
    found = []
    for _ in range(2):
        assert sum(batch.num_rows for _, batch in reader.read(_EVER)) == reader.rows == len(values)
        found.append(reader.queries)
    return found


@pytest.mark.parametrize(
    ("fetch_size", "sizes", "queries"),
    [
        (10, [1] * 19, [1, 1]),
        (10, [1] * 20, [1, 2]),
        (10_000, [300_000] * 7, [1, 1]),
        (10_000, [300_000] * 9, [1, 2]),
    ],
)
def test_a_chunk_that_fills_two_pages_is_split(
    fetch_size: int, sizes: list[int], queries: list[int]
) -> None:
    """A chunk that fills two pages is split in the next window.

    A page ends at the requested number of rows, or earlier at the server's size limit.
    """
    config = ReadConfig(fetch_size=fetch_size)
    assert _queries(config, [bytes(size) for size in sizes]) == queries
