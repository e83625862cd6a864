"""Cuts windows to the number of rows that a micro-batch may have, estimated from samples."""

from __future__ import annotations

from attrs import frozen

from cdc_reader._time import FOREVER, Micros, duration_micros
from cdc_reader.cql.schema import LogSchema
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.streaming.row_count import TOO_MANY, RowCount, row_count

_COUNTED = 2
"""The multiple of the limit at which the count ends, because there are too many rows."""
_ROUNDS, _MOST_ROUNDS = 5, 40
"""The maximum number of samples of a window, and the maximum while no rows are found.

A cut without rows would make an empty micro-batch. While no rows are found, each sample halves the
rest, so 40 samples find a row in any window.
"""


@frozen
class Cut:
    """A possible end of a window, and the estimated number of rows up to it."""

    end: int
    rows: float


@frozen
class RowLimit:
    """Cuts windows to about `limit` rows, but to no less than `shortest` µs."""

    count: RowCount
    limit: int
    shortest: int

    def end(self, window: Window) -> Micros:
        """Return the end to which the window is cut, or its own end if it has few enough rows.

        Rows are unevenly distributed in time, so a cut window is sampled again, until it has at
        least about half of the limit.
        """
        low, high = Cut(window.start, 0), Cut(window.end, 0)
        end = window.end
        for number in range(_MOST_ROUNDS):
            most = _COUNTED * self.limit
            found = Cut(end, self.count.rows(Window(window.start, end), most))
            if found.rows > self.limit:
                high = found
            elif found.end == window.end or 2 * found.rows >= self.limit:
                return found.end
            else:
                low = found
            if high.end - low.end <= self.shortest or (number >= _ROUNDS and low.rows):
                break
            is_quiet = low.end > window.start and not low.rows
            end = low.end + self._step(low, high, is_quiet=is_quiet)
        return low.end if low.rows else high.end

    def _step(self, low: Cut, high: Cut, *, is_quiet: bool) -> int:
        """Return the distance from `low` to the next cut.

        Assumes an even distribution. Returns a quarter of the distance to `high` if there were too
        many rows to count, and at least half of that distance if there are no rows before `low`.
        """
        gap = high.end - low.end
        if high.rows == TOO_MANY:
            step = gap // 4
        else:
            step = int(gap * (self.limit - low.rows) / (high.rows - low.rows))
        return min(max(step, gap // 2 if is_quiet else 0, self.shortest), gap - 1)


def within_limits(options: SourceOptions, schema: LogSchema, window: Window) -> Micros:
    """Return the end of `window` after it is cut to the limits of a micro-batch."""
    count = row_count(options, schema)
    limit = options.max_rows or FOREVER
    if options.max_bytes is not None and (size := count.row_size(window)):
        limit = min(limit, max(1, int(options.max_bytes / size)))
    return RowLimit(count, limit, duration_micros(options.min_advance)).end(window)
