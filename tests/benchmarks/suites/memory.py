"""Memory used to read many rows, and memory used while a slow handler delays reading."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.consumer import CdcConsumer
from cdc_reader.reader import CdcReader
from tests.benchmarks.apart import apart, peak_mb, resident_mb
from tests.benchmarks.figure import Figure
from tests.benchmarks.logs import FLAT, PAGE_ROWS, fill, log_of
from tests.benchmarks.serving import KEYSPACE, Served, serving

FEW, MANY = 50_000, 5_000_000
CONSUMED, WARM, SLOW_EVERY = 2_000_000, 100_000, 50
"""Changes to consume, changes per memory sample, and changes from one slow call to the next."""


def figures(times: int) -> Iterator[Figure]:
    """Compare the peak memory of two processes: one reads many rows, the other reads few."""
    del times  # each peak is measured only once
    with serving() as served:
        fill(served)
        for name, read, target in (("memory", batches, 100), ("memory_changes", changes, None)):
            few, many = (_peak(served, read, rows) for rows in (FEW, MANY))
            note = f"{many:.0f} MB for {MANY:,} rows, {few:.0f} MB for {FEW:,}"
            yield Figure(name, many - few, "MB more", at_most=target, note=note)
        served.replay(log_of(FLAT), CONSUMED // PAGE_ROWS, PAGE_ROWS)
        rose, seconds = apart(_consumed, served.config)
        note = f"while {CONSUMED:,} rows were consumed, {CONSUMED / seconds:,.0f} a second"
        yield Figure("slow_handler_memory", rose, "MB more", at_most=60, note=note)


def _peak(served: Served, read: Callable[[CdcReader], int], rows: int) -> float:
    served.replay(log_of(FLAT), rows // PAGE_ROWS, PAGE_ROWS)
    return apart(_reading, served.config, read, rows)


def _reading(config: ConnectionConfig, read: Callable[[CdcReader], int], rows: int) -> float:
    with CdcReader(config, f"{KEYSPACE}.{FLAT}") as reader:
        found = read(reader)
    assert found == rows, f"expected {rows} rows, found {found}"
    return peak_mb()


def batches(reader: CdcReader) -> int:
    """Read all batches, and return the number of rows."""
    return sum(batch.num_rows for batch in reader.batches())


def changes(reader: CdcReader) -> int:
    """Read all changes, and return their number."""
    return sum(1 for change in reader.changes() if change.key)


def _consumed(config: ConnectionConfig) -> tuple[float, float]:
    """Consume changes with a handler that is sometimes slow.

    Return the rise in memory since the first sample (MB) and the total time (seconds).
    """
    seen: list[float] = []
    numbers = itertools.count(1)

    def handle(_change: Change) -> None:
        number = next(numbers)
        if number % SLOW_EVERY == 0:
            time.sleep(0.002)
        if number % WARM == 0:
            seen.append(resident_mb())

    start = time.perf_counter()
    CdcConsumer(
        config,
        f"{KEYSPACE}.{FLAT}",
        handle,
        application="memory",
        checkpoints=MemoryCheckpoints(),
        end=time.time_ns() // 1_000,
        read=ReadConfig(window=timedelta(days=1), confidence_window=timedelta(0)),
    ).run()
    assert len(seen) == CONSUMED // WARM, f"{len(seen)} times {WARM} changes"
    return max(seen) - seen[0], time.perf_counter() - start
