"""Delays micro-batches until there are enough rows for one, or enough time has passed."""

from __future__ import annotations

from collections.abc import Callable

from cdc_reader._time import BEGINNING, Micros
from cdc_reader.streams.window import Window


class MinimumRows:
    """Decides whether a settled window has enough rows for a micro-batch; times in µs.

    About `least` rows are enough, as counted by `count`. In a window of length `longest` or more,
    any number of rows is enough. A window without rows becomes a micro-batch when its length
    reaches `idle`; this micro-batch only moves the position. The driver counts rows each time the
    window has grown by `shortest`. Settled rows do not change, so each row is counted only once.
    Rows that may soon expire do not wait, even if there are few.
    """

    def __init__(
        self,
        count: Callable[[Window], float],
        least: int,
        *,
        shortest: int,
        longest: int,
        idle: int,
    ) -> None:
        self._count = count
        self._least = least
        self._shortest = shortest
        self._longest = longest
        self._idle = idle
        self._position = self._counted_until = BEGINNING
        self._rows = 0.0

    def end(self, window: Window, is_endangered: Callable[[], bool]) -> Micros:
        """Return the end of the window if it is worth a micro-batch; otherwise its start.

        `is_endangered` returns True if rows of the window may soon expire. It is called only when
        rows are counted, because it reads the log's TTL.
        """
        if window.start != self._position:
            self._position = self._counted_until = window.start
            self._rows = 0.0
        if window.length >= self._longest:
            return window.end
        is_idle = not self._rows and window.length >= self._idle
        uncounted = Window(self._counted_until, window.end)
        if uncounted.length >= self._shortest or (is_idle and not uncounted.is_empty):
            if is_endangered():
                return window.end
            self._rows += self._count(uncounted)
            self._counted_until = window.end
        is_worth_it = self._rows >= self._least or (is_idle and not self._rows)
        return window.end if is_worth_it else window.start
