"""Searches for late rows, among the rows in force and among strays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from cdc_reader._time import Clock
from cdc_reader.reading.deduplication import leave_out_keys
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.late.rows import Sweep
from cdc_reader.reading.late.strays import Strays, Twins
from cdc_reader.streams.window import Window

Read = Callable[[Window], Iterable[pa.RecordBatch]]
"""Reads the rows in force of a window, each with its `EXPIRY`."""


def late_rows(
    sweep: Sweep, strays: Strays, in_force: Read, ttls: TtlHistory, clock: Clock
) -> Iterator[pa.RecordBatch]:
    """Yield the late rows that a search finds. Strays come last, although they are read first.

    A row whose stray twin was delivered before is left out.
    """

    def late(batch: pa.RecordBatch) -> pa.RecordBatch:
        return sweep.late(batch, ttls, clock.now())

    found, delivered = strays.split(sweep.window, late)
    twins = Twins(found)
    for batch in in_force(sweep.window):
        twins.note(batch)
        rows = leave_out_keys(late(batch), delivered)
        if rows.num_rows:
            yield rows
    yield from strays.without_twins(found, twins)
