"""Records the generations that are known at an offset, to detect generations announced late.

A micro-batch from offset a to offset b reads the rows of its window in each generation that is
known at b. If one of these generations is not known at a, the micro-batch also reads the rows from
that generation's start to the window, because no earlier micro-batch can have read them. The rows
of a micro-batch therefore depend only on its two offsets, even if a generation is announced before
the micro-batch is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from attrs import frozen

from cdc_reader._time import BEGINNING, Micros
from cdc_reader.reading.progress import is_moment
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window

MOST = 16
"""The maximum number of starts in an offset; older generations announced later are not read."""


@frozen
class KnownGenerations:
    """The newest generations known at an offset, by their `starts` in µs, ascending.

    All older generations count as known. `since` (µs) is the position at which the query or this
    record began. Rows of a late-announced generation that were written before `since` are not
    delivered.
    """

    since: Micros
    starts: tuple[Micros, ...]

    @classmethod
    def after(cls, before: Self | None, position: Micros, visible: Timeline) -> Self:
        """Return the generations known at the next offset: those of `before` and of `visible`.

        `before` is None if the last offset, at `position`, records no generations. Generations
        stay known even if they are not visible, because with tablets a lagging node shows fewer.
        """
        known = before or cls(position, ())
        starts = Timeline((*known.starts, *visible.starts)).starts
        return cls(known.since, starts[-MOST:])

    def knows(self, start: Micros) -> bool:
        """Return True if the generation that starts at `start` was known."""
        return start in self.starts or start < min(self.starts, default=BEGINNING)

    def missed(self, before: KnownGenerations | None, position: Micros) -> dict[Micros, Window]:
        """Return, for each generation that `before` lacks, its unread window behind `position`.

        The result is empty if `before` is None, which means that the offset records no generations.
        """
        if before is None:
            return {}
        behind = Window(self.since, position)
        unread = {
            span.start: span.intersect(behind)
            for span in Timeline(self.starts).operating()
            if not before.knows(span.start)
        }
        return {start: window for start, window in unread.items() if not window.is_empty}

    def covers(self, position: Micros) -> bool:
        """Return True if `starts` contains all generations that are in force from `position` on."""
        return bool(self.starts) and self.starts[0] <= position

    def timeline(self, visible: Timeline) -> Timeline:
        """Return a timeline of the `starts`, and of the older generations in `visible`."""
        oldest = min(self.starts, default=BEGINNING)
        return Timeline((*(start for start in visible.starts if start < oldest), *self.starts))

    def to_json(self) -> dict[str, Any]:
        """Return the value as JSON, in the key order that is part of the offset's format."""
        return {"since": self.since, "known": list(self.starts)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Parse a stored value; raise KeyError, TypeError or ValueError if it is invalid."""
        since, starts = stored["since"], tuple(stored["known"])
        if not all(map(is_moment, (since, *starts))):
            raise ValueError("expected times in microseconds")
        return cls(since, Timeline(starts).starts)
