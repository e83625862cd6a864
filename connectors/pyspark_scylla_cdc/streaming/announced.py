"""Reads which generations are announced, before each micro-batch and now and then between them."""

from __future__ import annotations

from collections.abc import Callable

from cdc_reader._time import BEGINNING, Micros
from cdc_reader.streams.generation import Timeline
from pyspark_scylla_cdc.offsets.generations import KnownGenerations
from pyspark_scylla_cdc.offsets.offset import Offset

INTERVAL = 10_000_000
"""µs between two reads while there is nothing else to deliver."""


class AnnouncedGenerations:
    """The generations announced so far; `read` reads those that are visible now."""

    def __init__(self, read: Callable[[], Timeline]) -> None:
        self._read = read
        self._read_at = BEGINNING
        self._timeline = Timeline(())

    def timeline(self) -> Timeline:
        """Return all generations as of the last `known`."""
        return self._timeline

    def known(self, since: Offset, now: Micros, *, fresh: bool) -> KnownGenerations:
        """Return what the next offset after `since` knows; read it now (µs) if it must be `fresh`.

        It must be if the offset has a window, in which a generation may have begun.
        """
        if fresh or not 0 <= now - self._read_at < INTERVAL:
            self._timeline, self._read_at = self._read(), now
        known = KnownGenerations.after(since.generations, since.position, self._timeline)
        self._timeline = known.timeline(self._timeline)
        return known
