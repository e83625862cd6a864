"""Reads the announced generations before each micro-batch, and sometimes in between."""

from __future__ import annotations

from collections.abc import Callable

from cdc_reader._time import BEGINNING, Clock, Micros
from cdc_reader.streams.generation import Timeline
from pyspark_scylla_cdc.offsets.generations import KnownGenerations
from pyspark_scylla_cdc.offsets.offset import Offset

INTERVAL = 10_000_000
"""The longest time, in µs, until a generation that was announced late is noticed."""


class AnnouncedGenerations:
    """The generations announced so far; `visible` reads the generations that are visible now."""

    def __init__(self, visible: Callable[[], Timeline], clock: Clock) -> None:
        self._visible = visible
        self._clock = clock
        self._read_at = BEGINNING
        self._timeline = Timeline(())

    def read(self) -> Timeline:
        """Read the generations that are visible now."""
        self._read_at = self._clock.now()
        self._timeline = self._visible()
        return self._timeline

    def latest(self) -> Timeline:
        """Return all generations as of the last call of `known` or `read`."""
        return self._timeline if self._read_at > BEGINNING else self.read()

    def known(self, since: Offset, now: Micros, *, has_window: bool) -> KnownGenerations | None:
        """Return the generations known at the offset that follows `since`.

        The micro-batch that ends at that offset began at `now` (µs). If the micro-batch has a
        window, the generations must be read at `now` or later, because another generation may have
        begun in the window. If it has no window, and `since` records no generations, the result is
        None, because no generation can have been missed yet.
        """
        if since.generations is None and not has_window:
            return None
        since_when = now if has_window else now - INTERVAL
        if not since_when <= self._read_at < now + INTERVAL:
            self.read()
        known = KnownGenerations.after(since.generations, since.position, self._timeline)
        self._timeline = known.timeline(self._timeline)
        return known
