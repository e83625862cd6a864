"""A consumer's work besides reading: delivering changes, acknowledging them, saving marks.

The handler does nothing. `consume` has one worker and a log with 100 partition keys.
`consume_scattered` has the default number of workers, which share the changes by partition key, and
a log in which each change has its own partition key. The figures include the CPU time of all
threads, and the time to connect, because each consumer opens its own connection.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import count

from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.consumer import CdcConsumer, ConsumerConfig
from cdc_reader.reader import CdcReader
from tests.benchmarks.figure import Figure
from tests.benchmarks.logs import FLAT, PAGE_ROWS, SCATTERED, fill, fill_scattered, log_of
from tests.benchmarks.serving import KEYSPACE, Served, serving
from tests.benchmarks.turns import take_turns

PAGES = 300
"""The number of pages, large enough that the time to connect is negligible."""
ROWS = PAGES * PAGE_ROWS


def figures(times: int) -> Iterator[Figure]:
    """Measure how much more CPU time a consumer takes than iterating over the same changes."""
    with serving() as served:
        fill(served)
        fill_scattered(served)
        yield _figure("consume", FLAT, ConsumerConfig(workers=1), served, times, at_most=1.5)
        yield _figure("consume_scattered", SCATTERED, ConsumerConfig(workers=4), served, times)


def _figure(
    name: str,
    table: str,
    config: ConsumerConfig,
    served: Served,
    times: int,
    at_most: float | None = None,
) -> Figure:
    served.replay_on(log_of(table), PAGES, PAGE_ROWS)
    time.sleep(0.1)  # a consumer reads up to now, so all rows must be older
    full = f"{KEYSPACE}.{table}"
    with CdcReader(served.config, full) as reader:
        ways = {
            "consumer": lambda: consume(served.config, full, config),
            "reader": lambda: iterate(reader),
        }
        found = take_turns(ways, times)
    cpu = {way: turn.cpu / ROWS * 1e6 for way, turn in found.items()}
    note = f"{cpu['consumer']:.2f} µs in all; {ROWS / found['consumer'].wall:,.0f} changes/s"
    return Figure(name, cpu["consumer"] - cpu["reader"], "µs/change", at_most=at_most, note=note)


def consume(connection: ConnectionConfig, table: str, config: ConsumerConfig) -> None:
    """Consume all changes."""
    handled = count()

    def handle(_change: Change) -> None:
        next(handled)  # needs no lock

    CdcConsumer(
        connection,
        table,
        handle,
        application="consume",
        checkpoints=MemoryCheckpoints(),
        end=time.time_ns() // 1_000,
        config=config,
        read=ReadConfig(window=timedelta(days=1), confidence_window=timedelta(0)),
    ).run()
    _check(next(handled))


def iterate(reader: CdcReader) -> None:
    """Iterate over all changes."""
    _check(sum(1 for _ in reader.changes()))


def _check(changes: int) -> None:
    assert changes == ROWS, f"expected {ROWS} changes, found {changes}"
