"""Reports rows that expired before a bounded read began, or while it ran."""

from __future__ import annotations

from typing import Protocol

from cdc_reader._time import BEGINNING, FOREVER, Clock, Micros
from cdc_reader.config import DataLossMode
from cdc_reader.cql.schema import TableSchema, TableState
from cdc_reader.reading.expiry import LossReporter, TtlHistory, lost_within
from cdc_reader.streams.window import Window

_PAUSE = 60_000_000
"""µs between two checks of the windows read; one more check follows at the end."""
_NOTHING = Window(FOREVER, BEGINNING)


class Table(Protocol):
    """The facts about a table that a read of its log checks."""

    def state(self) -> TableState:
        """Return the table's current id and options; costs one small query."""
        ...

    def created(self) -> Micros | None:
        """Return when the log was created, in µs by the cluster's clock; None if unknown."""
        ...


class BoundedRead:
    """Reports the losses of a read: before it, for the whole window; after each part, for the part.

    A caller may take its time between two batches, so a part counts as read only when the next
    batch is requested. A read without a start covers what the log holds when the read begins.
    """

    def __init__(self, table: Table, known: TableSchema, mode: DataLossMode, clock: Clock) -> None:
        self._table = table
        self._known = known
        self._clock = clock
        self._losses = LossReporter(
            mode,
            "expected a start within the log's TTL, and a read that ends within it: leave start "
            "out to read what the log still holds, or set data_loss to 'continue'",
        )
        self._ttls = TtlHistory()
        self._judged = BEGINNING
        self._unjudged = _NOTHING

    def begin(self, window: Window) -> None:
        """Report rows of `window` that have expired; costs small queries if it has a start."""
        now, known = self._clock.now(), self._known
        self._judged, self._ttls = now, TtlHistory().seen(known.cdc.ttl, now, known.altered)
        if window.start > BEGINNING:
            self._see_ttl()
            lost = self._ttls.lost(window.start, now)
            lost = lost_within(window, lost, self._table.created, now)
            self._losses.report_unread(lost, known.name)
        else:
            self._losses.begin(window.start, self._ttls, now, at_oldest=True)

    def done(self, window: Window) -> None:
        """Record that `window` was read; check for losses if the last check was a minute ago."""
        self._unjudged = self._unjudged.hull(window)
        if self._clock.now() >= self._judged + _PAUSE:
            self._see_ttl()
            self.finish()

    def finish(self) -> None:
        """Check the windows read since the last check, and report rows that may have expired."""
        self._judged = self._clock.now()
        self._losses.check_read(
            self._unjudged, self._ttls, self._judged, self._known.name, self._table.created
        )
        self._unjudged = _NOTHING

    def _see_ttl(self) -> None:
        """Record the log's current TTL, which may change during a long read."""
        state = self._table.state()
        self._ttls = self._ttls.seen(state.cdc.ttl, self._clock.now(), state.altered)
