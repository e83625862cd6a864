"""Promises: the rows of the log that tasks must find; other rows may have expired."""

from __future__ import annotations

from attrs import frozen

from cdc_reader._time import Clock, Micros
from cdc_reader.config import DataLossMode
from cdc_reader.cql.names import TableName
from cdc_reader.reading.expiry import LossReporter, TtlHistory
from cdc_reader.streams.window import Window


@frozen
class Promise:
    """The rows written at `since` (µs) or later, in a log with these TTLs.

    Planned on the driver, and checked by each task after it has read its rows, because rows may
    expire while the task waits.
    """

    ttls: TtlHistory
    since: Micros
    mode: DataLossMode

    def check(self, window: Window, table: TableName, clock: Clock) -> None:
        """Raise DataLossError, or warn, if rows of `window` may have expired before now."""
        losses = LossReporter(self.mode, self._remedy, named=self.since)
        losses.check_read(window, self.ttls, clock.now(), table)

    @property
    def _remedy(self) -> str:
        passed = f"the log's TTL of {self.ttls.seconds} s passed while the query read them"
        if self.mode is DataLossMode.RESNAPSHOT:
            return f"{passed}: start the query again, and it reads the table again"
        return (
            f"{passed}, and onDataLoss is {self.mode.value!r}: give 'continue' to do without them, "
            "or start over with a longer TTL, or less to read at a time"
        )
