"""Counts late rows by their keys, for readers that report them but do not deliver them.

There is no record of which rows were delivered, so only rows count that certainly arrived after
their window was read. Strays count when they are found first. On a log with many streams or rows, a
sample is read, and the number is a lower bound.
"""

from __future__ import annotations

import pyarrow as pa

from cdc_reader._time import Micros
from cdc_reader.reading import tuning
from cdc_reader.reading.cursor import LateState
from cdc_reader.reading.deduplication import keys, leave_out_keys, rows_named
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.late.keys import KeyReader
from cdc_reader.reading.late.rows import ARRIVAL_ERROR, Sweep
from cdc_reader.streams.window import Window


class LateReport:
    """Counts the late rows of up to `horizon` µs before the position, which starts at `position`.

    `confidence` is the confidence window, in µs, and `now` the time at which reading begins.
    """

    def __init__(self, position: Micros, now: Micros, horizon: int, confidence: int) -> None:
        self._state = LateState.begin(position, now, confidence)
        self._confidence = confidence
        self._horizon = horizon
        self._end = self._counted = position

    @property
    def counted_at(self) -> Micros:
        """The time of the last count, or of the beginning."""
        return self._state.searched_at

    def window_read(self, end: Micros, by: Micros) -> None:
        """Record that the log had been read up to `end` at the time `by`."""
        if end > self._end:
            read = by + ARRIVAL_ERROR
            self._state = self._state.after(end, self._state.began(read), read)
            self._end = end

    def count(
        self, log: KeyReader, position: Micros, ttls: TtlHistory, now: Micros
    ) -> tuple[Window, int]:
        """Return the window searched, and the number of new late rows in it."""
        sweep = Sweep.of(self._state, position, self._horizon, now, self._confidence)
        since, self._counted = self._counted, position
        if not ttls.seconds:
            self._state = sweep.done
            return sweep.window, 0

        def late(batch: pa.RecordBatch) -> pa.RecordBatch:
            return sweep.late(batch, ttls, now)

        def uncounted(batch: pa.RecordBatch) -> pa.RecordBatch:
            new = {name for name in keys(batch) if name[1].micros >= since}
            return rows_named(batch, new | set(keys(late(batch))))

        strays = log.strays
        window = Window(min(sweep.window.start, since), position)
        found, passed = strays.split(window, uncounted)
        rows, seen = sum(batch.num_rows for batch in strays.fresh_without_twins(found)), 0
        for batch in log.read(sweep.window):
            rows += leave_out_keys(late(batch), passed).num_rows
            seen += batch.num_rows
            if seen >= tuning.REPORT_ROWS:
                break
        self._state = sweep.done
        return sweep.window, rows
