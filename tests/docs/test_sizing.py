"""The numbers on the sizing page equal the numbers in the code."""

from __future__ import annotations

import re
from pathlib import Path

from cdc_reader.config import ReadConfig
from cdc_reader.reading.planner import Chunking
from cdc_reader.streams.window import Window
from cdc_reader.testing import Scylla
from pyspark_scylla_cdc.options.table import parse_options
from pyspark_scylla_cdc.planning.partition import LogPartition
from pyspark_scylla_cdc.planning.plan import StreamSpan, divide
from pyspark_scylla_cdc.sessions import LONGEST_IDLE
from pyspark_scylla_cdc.streaming.idle import MOST_QUERIES, STEP
from tests.benchmarks import log_cost

PAGE = Path(__file__).parents[2] / "docs/operate/sizing.md"
CLUSTER = PAGE.parents[1] / "howto/run-on-a-cluster.md"
ROW = re.compile(
    r"^\| (\d+) \| (\d+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| (\d+) \|$", re.MULTILINE
)
VNODES = 256


def test_what_a_write_costs(scylla: Scylla) -> None:
    """The page contains the table that `tests.benchmarks.log_cost` prints."""
    with log_cost.connected(scylla.contact_point) as connection:
        assert log_cost.table(connection) in PAGE.read_text()


def test_the_queries_of_a_window() -> None:
    """The page's numbers of queries follow from the default settings."""
    read = ReadConfig()
    rows = ROW.findall(PAGE.read_text())
    assert len(rows) == 5
    for row in rows:
        nodes, shards, *shown = (int(number.replace(",", "")) for number in row)
        streams = nodes * VNODES * shards
        queries = len(Chunking(range(streams), read.chunk_size))
        step = min(LONGEST_IDLE, STEP * queries // MOST_QUERIES) // 1_000_000
        assert shown == [
            streams,
            queries,
            round(queries / read.poll_interval.total_seconds()),
            step,
        ]


def test_the_example_of_partitions() -> None:
    """The numbers of the example with 5,000 streams follow from the default settings."""
    options = parse_options({"hosts": "scylla", "path": "shop.orders"})
    streams, chunk, partitions = 5_000, options["chunkSize"], options["maxPartitions"]
    queries = len(Chunking(range(streams), chunk))
    micro_batch = queries_of(streams, partitions, chunk)
    step = STEP / 1e6 * queries / MOST_QUERIES
    shown = " ".join(CLUSTER.read_text().split())
    assert queries > MOST_QUERIES
    few = {queries_of(streams, count, chunk) for count in (8, 16, 20, 40, 79)}
    between = f"{min(few)} or {max(few)}"
    more, most = (queries_of(streams, count, chunk) for count in (32, 64))
    for text in (
        f"With {streams:,} streams, for example, 8, 16, 20, 40 or 79 partitions need",
        (
            f"{between} queries for each window, but 32 partitions need {more}, "
            f"and 64 partitions need {most}."
        ),
        f"{partitions} partitions, it sends {micro_batch} queries every {step:.1f} seconds",
        f"A trigger of 10 seconds reduces the load to {micro_batch / 10:.0f} queries per second",
    ):
        assert text in shown
    assert few == {79, 80}


def queries_of(streams: int, partitions: int, chunk: int) -> int:
    """Return the number of queries that a plan with this many partitions takes for a window."""
    window = Window(0, 1)
    shares = divide([StreamSpan(window, 0, 0, streams, window)], 1, partitions)
    assert len(shares) == partitions
    return sum(LogPartition(share, [None] * len(share)).queries(chunk) for share in shares)
