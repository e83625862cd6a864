"""Cuts windows to the rows and bytes that a micro-batch may have, estimated from samples."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve, frozen

from cdc_reader._time import Micros
from cdc_reader.cql.schema import LogSchema
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.row_count import TOO_MANY, row_count

SHORTEST = 1_000
"""The shortest window, in µs, to which another is cut."""
_COUNTED = 2
"""Counting ends at this multiple of the limit: the window has too many rows in any case."""
_ROUNDS, _MOST_ROUNDS = 5, 40
"""The maximum number of samples of a window, and the maximum while no rows are found.

A cut without rows would make an empty micro-batch. While no rows are found, each sample halves the
rest, so 40 samples find a row in any window.
"""


Measure = Callable[[Window, float], float]
"""Returns the rows or the bytes in a window, or TOO_MANY if there are more than a given number."""


@frozen
class Cut:
    """A possible end of a window, and the estimated amount (of rows or bytes) up to it."""

    end: int
    amount: float


@frozen
class RowLimit:
    """Cuts windows to about `limit`, as measured by `measure`, but to no less than `SHORTEST`.

    `limit` is a number of rows or of bytes.
    """

    measure: Measure
    limit: int

    def end(self, window: Window) -> Micros:
        """Return the end to which the window is cut, or its own end if it is within the limit.

        Rows are unevenly distributed in time, so a cut window is sampled again, until it has at
        least about half of the limit.
        """
        low, high = Cut(window.start, 0), Cut(window.end, 0)
        end = window.end
        for number in range(_MOST_ROUNDS):
            found = Cut(end, self.measure(Window(window.start, end), _COUNTED * self.limit))
            if found.amount > self.limit:
                high = found
            elif found.end == window.end or 2 * found.amount >= self.limit:
                return found.end
            else:
                low = found
            if high.end - low.end <= SHORTEST or (number >= _ROUNDS and low.amount):
                break
            is_quiet = low.end > window.start and not low.amount
            end = low.end + self._step(low, high, is_quiet=is_quiet)
        return low.end if low.amount else high.end

    def _step(self, low: Cut, high: Cut, *, is_quiet: bool) -> int:
        """Return the distance from `low` to the next cut.

        Assumes an even distribution. Returns a quarter of the distance to `high` if there were too
        many rows to count, and at least half of that distance if there are no rows before `low`.
        """
        gap = high.end - low.end
        if high.amount == TOO_MANY:
            step = gap // 4
        else:
            step = int(gap * (self.limit - low.amount) / (high.amount - low.amount))
        return min(max(step, gap // 2 if is_quiet else 0, SHORTEST), gap - 1)


def within_limits(
    options: SourceOptions, schema: LogSchema, timeline: Timeline, window: Window
) -> Micros:
    """Return the end of `window` after it is cut to the limits of a micro-batch."""
    count = row_count(options, schema, timeline)
    for measure, limit in ((count.rows, options.max_rows), (count.size, options.max_bytes)):
        if limit is not None:
            window = evolve(window, end=RowLimit(measure, limit).end(window))
    return window.end
