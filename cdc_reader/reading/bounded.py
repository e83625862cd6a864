"""Reports rows that expired before a bounded read began, or while it ran."""

from __future__ import annotations

from typing import Protocol

from cdc_reader._time import BEGINNING, FOREVER, Clock, Micros
from cdc_reader.config import DataLossMode
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import TableState
from cdc_reader.reading.expiry import TtlHistory, since_created
from cdc_reader.reading.loss import LossReporter
from cdc_reader.streams.window import Window

_PAUSE = 60_000_000
"""µs between two checks of the windows read; one more check follows at the end."""
_NOTHING = Window(FOREVER, BEGINNING)


class Table(Protocol):
    """The facts about a table that a read of its log checks."""

    def state(self) -> TableState:
        """Return the table's current state, at the cost of one small query."""
        ...


class BoundedRead:
    """Checks for lost rows: in the whole window before a read, and in each part once it is read.

    A caller may pause between two batches, so a part counts as read only when the next batch is
    requested. A read without a start covers everything that the log contains when the read begins.
    """

    def __init__(
        self,
        table: Table,
        name: TableName,
        ttls: TtlHistory,
        mode: DataLossMode,
        clock: Clock,
    ) -> None:
        self._table = table
        self._name = name
        self._ttls = ttls
        self._clock = clock
        self._losses = LossReporter(
            mode,
            "expected a start whose rows do not expire before they are read: leave out start "
            "to read what the log still holds, or set data_loss to 'continue'",
        )
        self._judged = BEGINNING
        self._unjudged = _NOTHING

    def begin(self, window: Window) -> None:
        """Report rows of `window` that have already expired.

        Sends small queries if the window has a start.
        """
        self._judged = now = self._clock.now()
        if window.start > BEGINNING:
            self._see_log(window.start)
            lost = since_created(self._ttls.lost(window.start, now), self._ttls.created, now)
            self._losses.report_unread(lost.intersect(window), self._name, self._ttls)
        else:
            self._losses.begin(window.start, self._ttls, now, at_oldest=True)

    def done(self, window: Window) -> None:
        """Record that `window` was read; check for losses if the last check is a minute old."""
        self._unjudged = self._unjudged.hull(window)
        if self._clock.now() >= self._judged + _PAUSE:
            self.finish()

    def finish(self) -> None:
        """Check the windows read since the last check, and report rows that may be gone."""
        if self._unjudged.is_empty:
            return
        self._see_log(self._unjudged.start)
        self._judged = self._clock.now()
        self._losses.check_read(
            self._unjudged, self._ttls, self._judged, self._name, is_chosen=True
        )
        self._unjudged = _NOTHING

    def refused(self, window: Window) -> None:
        """Report rows of `window` that are gone because the log was dropped, and created again.

        To be called after a query was refused: in between, the log did not exist.
        """
        before = self._ttls.logs
        self._see_log(window.start)
        if self._ttls.logs != before:
            now = self._clock.now()
            self._losses.check_read(window, self._ttls, now, self._name, is_chosen=True)

    def _see_log(self, unread: Micros) -> None:
        """Record the log's current TTL and id.

        Both may change while rows written at `unread` (µs) or later are still unread.
        """
        self._ttls = self._ttls.updated(self._table.state(), self._clock.now(), unread)
