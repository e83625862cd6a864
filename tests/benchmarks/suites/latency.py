"""The latency of eager delivery: the time from a write to the handler call."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cassandra.cluster import Cluster

from cdc_reader.changes.change import Change
from cdc_reader.config import ReadConfig
from cdc_reader.consumer import CdcConsumer
from tests.benchmarks.figure import Figure
from tests.benchmarks.serving import KEYSPACE, Served, serving

WRITES, PATIENCE = 40, 10.0
TABLE = f"{KEYSPACE}.latency"


def figures(times: int) -> Iterator[Figure]:
    """Measure the median latency of single writes at random times."""
    with serving(vnodes=16, shards=2) as served:
        served.execute(
            f"CREATE TABLE {TABLE} (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}"
        )
        taken = [seconds * 1_000 for seconds in _latencies(served, times * WRITES // 5)]
    late = statistics.quantiles(taken, n=20)[-1]
    note = f"95 % within {late:.0f} ms, of {len(taken)} writes; polls every 100 ms"
    yield Figure("eager_latency", statistics.median(taken), "ms", at_most=200, note=note)


def _latencies(served: Served, writes: int) -> Iterator[float]:
    heard: dict[int, float] = {}
    news = threading.Condition()

    def hear(change: Change) -> None:
        with news:
            heard[change.key["pk"]] = time.perf_counter()
            news.notify()

    with Cluster(["127.0.0.1"], port=served.port, protocol_version=4) as cluster:
        session = cluster.connect()
        write = session.prepare(f"INSERT INTO {TABLE} (pk, v) VALUES (?, 1)")
        with _consuming(served, hear):
            for number in range(-3, writes):  # the consumer starts during the first ones
                time.sleep(random.uniform(0, 0.2))
                sent = time.perf_counter()
                session.execute(write, (number,))
                with news:
                    assert news.wait_for(lambda: number in heard, PATIENCE), "a write was lost"  # noqa: B023
                if number >= 0:
                    yield heard[number] - sent


@contextmanager
def _consuming(served: Served, handler: object) -> Iterator[None]:
    consumer = CdcConsumer(
        served.config,
        TABLE,
        handler,  # type: ignore[arg-type]  # takes changes
        application="latency",
        read=ReadConfig(delivery="eager"),
    )
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        yield
    finally:
        consumer.stop()
        thread.join()
