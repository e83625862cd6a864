"""Windows of write time, whose size adapts to the rows found."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, frozen

from cdc_reader._time import Micros, format_timestamp


@frozen
class Window:
    """The half-open span [start, end) of write times, in µs since 1970.

    It is empty if start ≥ end.
    """

    start: Micros
    end: Micros

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end

    @property
    def length(self) -> int:
        """The length in µs; 0 if empty."""
        return max(0, self.end - self.start)

    def __contains__(self, micros: Micros) -> bool:
        return self.start <= micros < self.end

    def intersect(self, other: Window) -> Window:
        """Return the part common to both windows."""
        return Window(max(self.start, other.start), min(self.end, other.end))

    def hull(self, other: Window) -> Window:
        """Return the smallest window that contains both windows."""
        return Window(min(self.start, other.start), max(self.end, other.end))

    def widened(self, reach: int) -> Window:
        """Return the window extended by `reach` µs on both sides."""
        return Window(self.start - reach, self.end + reach)

    def margins(self, reach: int, within: Window) -> Iterator[Window]:
        """Yield the parts of `within` that are up to `reach` µs before this window or after it."""
        for margin in (Window(self.start - reach, self.start), Window(self.end, self.end + reach)):
            part = margin.intersect(within)
            if not part.is_empty:
                yield part

    def __str__(self) -> str:
        return f"[{format_timestamp(self.start)}, {format_timestamp(self.end)})"


@frozen
class WindowSize:
    """The length of the next window, which doubles while windows are empty and is reset by data.

    Days without writes therefore cost few queries. Windows with data keep the configured length,
    because a checkpoint is saved after each window. `base` and `limit` are in µs. A reader that
    holds a window's rows in memory halves windows with too many rows; `doublings` is then negative.
    """

    base: int
    limit: int
    doublings: int = 0

    @property
    def current(self) -> int:
        if self.doublings < 0:
            return max(1, self.base >> -self.doublings)
        return max(self.base, min(self.base << self.doublings, self.limit))

    def after(self, *, empty: bool, crowded: bool = False) -> WindowSize:
        """Return the next window's size, given whether the last window was `empty`.

        A size below the base grows back to it, except after a `crowded` window.
        """
        if not empty:
            return evolve(self, doublings=min(0, self.doublings + (not crowded)))
        return self if self.current >= self.limit else evolve(self, doublings=self.doublings + 1)

    def below(self, length: int) -> WindowSize:
        """Return the largest size shorter than `length` (µs), which must be more than 1."""
        size = self
        while size.current >= length:
            size = evolve(size, doublings=size.doublings - 1)
        return size
