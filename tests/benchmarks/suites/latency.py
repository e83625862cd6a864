"""Eager delivery: the time from a write to the handler call, and the cost of idle polls."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from unittest.mock import patch

from cassandra.cluster import Cluster

from cdc_reader.changes.change import Change
from cdc_reader.config import ReadConfig
from cdc_reader.consumer import CdcConsumer
from cdc_reader.streams import polling
from tests.benchmarks.figure import Figure
from tests.benchmarks.serving import KEYSPACE, Served, serving

TABLE = f"{KEYSPACE}.latency"
WRITES, PER_SECOND, WARM_UP, PATIENCE = 10_000, 100, 200, 30.0
IDLE_SECONDS = 20
UNIFORM = timedelta(milliseconds=100)
"""The interval of the rival, which polls each chunk of streams equally often."""


def figures(_times: int) -> Iterator[Figure]:
    """Measure 10,000 writes at a steady rate, and the queries of an idle table of 512 streams."""
    with serving(vnodes=256, shards=2) as served:
        served.execute(
            f"CREATE TABLE {TABLE} (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}"
        )
        idle = _idle_queries(served, ReadConfig(delivery="eager"))
        with patch.object(polling, "_TIMES", 1):
            config = ReadConfig(delivery="eager", eager_interval=UNIFORM)
            uniform = _idle_queries(served, config)
        taken = [seconds * 1_000 for seconds in _latencies(served)]
    rank = statistics.quantiles(taken, n=1_000)
    against = f"polling all streams every {UNIFORM // timedelta(milliseconds=1)} ms"
    note = f"{WRITES:,} writes at {PER_SECOND}/s, 512 streams"
    yield Figure("eager_latency", rank[499], "ms", at_most=40, note=note)
    yield Figure("latency_p99", rank[989], "ms", at_most=120, note=f"p99.9: {rank[998]:.0f} ms")
    yield Figure("idle_polls", idle, "queries/s", uniform, against, at_most=0.5)


def _idle_queries(served: Served, read: ReadConfig) -> float:
    """Return the number of queries per second that a consumer sends while nothing is written."""
    with _consuming(served, read, lambda _change: None):
        time.sleep(3)
        before, began = served.asked(), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        return (served.asked() - before) / (time.perf_counter() - began)


def _latencies(served: Served) -> list[float]:
    """Return the seconds from each write to its handler call, after the warm-up."""
    heard: dict[int, float] = {}
    complete = threading.Event()
    last = WARM_UP + WRITES - 1

    def hear(change: Change) -> None:
        heard[change.key["pk"]] = time.perf_counter()
        if len(heard) > last:
            complete.set()

    with Cluster(["127.0.0.1"], port=served.port, protocol_version=4) as cluster:
        session = cluster.connect()
        write = session.prepare(f"INSERT INTO {TABLE} (pk, v) VALUES (?, 1)")
        sent: list[float] = []
        with _consuming(served, ReadConfig(delivery="eager"), hear):
            began = time.perf_counter()
            for number in range(last + 1):
                time.sleep(max(0, began + number / PER_SECOND - time.perf_counter()))
                sent.append(time.perf_counter())
                session.execute_async(write, (number,))
            assert complete.wait(PATIENCE), "a write was lost"
    return [heard[number] - sent[number] for number in range(WARM_UP, last + 1)]


@contextmanager
def _consuming(served: Served, read: ReadConfig, handler: object) -> Iterator[None]:
    consumer = CdcConsumer(
        served.config,
        TABLE,
        handler,  # type: ignore[arg-type]  # takes changes
        application="latency",
        read=read,
    )
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        yield
    finally:
        consumer.stop()
        thread.join()
