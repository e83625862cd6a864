"""Windows of write time, and how their size follows what is found in them."""

from __future__ import annotations

from attrs import evolve, frozen

from cdc_reader.timestamp import format_timestamp

BEGINNING = -(1 << 62)
"""Before every write time, in µs."""
FOREVER = 1 << 62
"""After every write time, in µs."""


@frozen
class Window:
    """The half-open span [start, end) of write times, in µs since 1970. start ≥ end is empty."""

    start: int
    end: int

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end

    @property
    def length(self) -> int:
        """µs from start to end; 0 if empty."""
        return max(0, self.end - self.start)

    def __contains__(self, micros: int) -> bool:
        return self.start <= micros < self.end

    def intersect(self, other: Window) -> Window:
        """The part that is in both."""
        return Window(max(self.start, other.start), min(self.end, other.end))

    def __str__(self) -> str:
        return f"[{format_timestamp(self.start)}, {format_timestamp(self.end)})"


@frozen
class WindowSize:
    """The length of the next window: doubled while windows are empty, set back by data.

    Days of nothing cost a handful of queries this way; where there is data, a window stays
    as small as it was set, for it is the unit of a checkpoint. `base` and `limit` in µs.
    """

    base: int
    limit: int
    doublings: int = 0

    @property
    def current(self) -> int:
        return max(self.base, min(self.base << self.doublings, self.limit))

    def next_window(self, position: int, horizon: int) -> Window:
        """The window to read from `position`; it never passes `horizon`."""
        return Window(position, min(position + self.current, horizon))

    def after(self, *, empty: bool) -> WindowSize:
        """The size to use after a window that turned out `empty` or not."""
        if not empty:
            return evolve(self, doublings=0)
        return self if self.current >= self.limit else evolve(self, doublings=self.doublings + 1)
