"""Eager delivery: the time from a write to the handler call, and the cost of idle polls."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import accumulate
from unittest.mock import patch

from cassandra.cluster import Cluster

from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.config import ReadConfig
from cdc_reader.consumer import CdcConsumer
from cdc_reader.streams import polling
from tests.benchmarks.figure import Figure
from tests.benchmarks.serving import KEYSPACE, Served, serving

TABLE = f"{KEYSPACE}.latency"
WRITES, PER_SECOND, WARM_UP, PATIENCE = 10_000, 100, 200, 30.0
RARE = 20
IDLE_SECONDS = 20
UNIFORM = timedelta(milliseconds=100)
"""The interval of the rival, which polls each chunk of streams equally often."""


def figures(_times: int) -> Iterator[Figure]:
    """Measure writes to a table of 512 streams, and the queries of a consumer while it is idle.

    10,000 writes have a steady rate. Before them, `RARE` writes are about a second apart. All
    streams are idle during these writes, and idle streams are polled less often than streams with
    new rows.
    """
    with serving(vnodes=256, shards=2) as served:
        served.execute(
            f"CREATE TABLE {TABLE} (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}"
        )
        idle = _idle_queries(served, ReadConfig(delivery="eager"))
        with patch.object(polling, "_TIMES", 1):
            config = ReadConfig(delivery="eager", poll_interval=UNIFORM)
            uniform = _idle_queries(served, config)
        rare = _milliseconds(served, range(RARE), _rarely())
        taken = _milliseconds(served, range(RARE, RARE + WARM_UP + WRITES), _steadily())[WARM_UP:]
    rank = statistics.quantiles(taken, n=1_000)
    against = f"polling all streams every {UNIFORM // timedelta(milliseconds=1)} ms"
    note = f"{WRITES:,} writes at {PER_SECOND}/s, 512 streams"
    yield Figure("eager_latency", rank[499], "ms", at_most=40, note=note)
    yield Figure("latency_p99", rank[989], "ms", at_most=120, note=f"p99.9: {rank[998]:.0f} ms")
    note = f"{RARE} writes; the first: {rare[0]:.0f} ms; at most {max(rare):.0f} ms"
    yield Figure("latency_rare", statistics.median(rare), "ms", at_most=240, note=note)
    yield Figure("idle_polls", idle, "queries/s", uniform, against, at_most=0.5)


def _idle_queries(served: Served, read: ReadConfig) -> float:
    """Return the number of queries per second that a consumer sends while nothing is written."""
    with _consuming(served, read, lambda _change: None):
        time.sleep(3)
        before, began = served.asked(), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        return (served.asked() - before) / (time.perf_counter() - began)


def _steadily() -> Iterator[float]:
    """Yield the times to write, in seconds from the start, with a warm-up first."""
    return (number / PER_SECOND for number in range(WARM_UP + WRITES))


def _rarely() -> Iterator[float]:
    """Yield the times to write, with varying pauses, so that polls and writes are not in step."""
    return accumulate((0.9 + 0.137 * (number % 5) for number in range(RARE - 1)), initial=3.0)


def _milliseconds(served: Served, keys: range, moments: Iterator[float]) -> list[float]:
    """Write each key at its time. Return the ms from each write to its handler call."""
    heard: dict[int, float] = {}
    complete = threading.Event()

    def hear(change: Change) -> None:
        if (key := change.key["pk"]) in keys:
            heard[key] = time.perf_counter()
            if len(heard) == len(keys):
                complete.set()

    with Cluster(["127.0.0.1"], port=served.port, protocol_version=4) as cluster:
        session = cluster.connect()
        write = session.prepare(f"INSERT INTO {TABLE} (pk, v) VALUES (?, 1)")
        sent: list[float] = []
        with _consuming(served, ReadConfig(delivery="eager"), hear):
            began = time.perf_counter()
            for key, moment in zip(keys, moments, strict=True):
                time.sleep(max(0, began + moment - time.perf_counter()))
                sent.append(time.perf_counter())
                session.execute_async(write, (key,))
            assert complete.wait(PATIENCE), "a write was lost"
    return [(heard[key] - at) * 1_000 for key, at in zip(keys, sent, strict=True)]


@contextmanager
def _consuming(served: Served, read: ReadConfig, handler: object) -> Iterator[None]:
    consumer = CdcConsumer(
        served.config,
        TABLE,
        handler,  # type: ignore[arg-type]  # takes changes
        application="latency",
        checkpoints=MemoryCheckpoints(),
        read=read,
    )
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        yield
    finally:
        consumer.stop()
        thread.join()
