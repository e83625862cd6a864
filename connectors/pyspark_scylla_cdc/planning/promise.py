"""Promises: the rows of the log that tasks must find; other rows may have expired."""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from cdc_reader._time import Micros
from cdc_reader.config import DataLossMode
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import TableState
from cdc_reader.errors import DataLossError
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.loss import LossReporter, warn_of_loss
from cdc_reader.streams.window import Window


def report_lost_late_rows(count: int, window: Window, table: TableName, mode: DataLossMode) -> None:
    """Raise DataLossError, or warn, because late rows of `window` listed in a plan are gone.

    If a new snapshot follows each loss, it includes these rows, so they are not reported.
    """
    if mode is DataLossMode.CONTINUE:
        warn_of_loss(window, table)
    if mode is DataLossMode.FAIL:
        raise DataLossError(
            f"{count} late rows of {table} written in {window} are gone: they expired before they "
            "were read, or the log was dropped and created again; onDataLoss is 'fail': give "
            "'continue' to do without them, or start over",
            window.start,
            window.end,
        )


@frozen
class Promise:
    """The rows written at `since` (µs) or later, in the newest log of the history `ttls`.

    The driver makes the promise, and each task checks it after it has read its rows, because rows
    may expire, or the log may be dropped and created again, while the task waits.
    """

    ttls: TtlHistory
    since: Micros
    mode: DataLossMode
    is_open: bool = False
    """True if the read has no start, so that rows that expire meanwhile cause only a warning."""

    def check(
        self, windows: Collection[Window], table: TableName, state: TableState, now: Micros
    ) -> None:
        """Raise DataLossError, or warn, if rows of the windows may be gone.

        `state` is the table's state as of `now` (µs).
        """
        first = min(window.start for window in windows)
        ttls = self.ttls.updated(state, now, max(self.since, first))
        is_other_log = ttls.logs != self.ttls.logs
        mode = DataLossMode.CONTINUE if self.is_open and not is_other_log else self.mode
        losses = LossReporter(mode, self._remedy(is_other_log), judged=self.since)
        for window in sorted({*windows}, key=lambda window: window.start):
            losses.check_read(window, ttls, now, table)

    def _remedy(self, is_other_log: bool) -> str:
        why, what = [], "start over"
        if not is_other_log:
            why = [f"the log's TTL of {self.ttls.seconds} s passed while the query read them"]
            what += " with a longer TTL, or less to read at a time"
        if self.mode is DataLossMode.RESNAPSHOT:
            return ": ".join([*why, "start the query again, and it reads the table again"])
        option = f"onDataLoss is {self.mode.value!r}: give 'continue' to do without them"
        return ", and ".join([*why, f"{option}, or {what}"])
