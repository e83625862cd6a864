"""Reports rows that were lost before they were read: they expired, or their log was dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce

from attrs import define, evolve, field

from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, FOREVER, Micros, format_timestamp
from cdc_reader.config import DataLossMode
from cdc_reader.cql.names import TableName
from cdc_reader.errors import ConfigurationError, DataLossError
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.expiry import EARLY, GRACE, SOON, TtlHistory, log_created, since_created
from cdc_reader.streams.window import Window

log = get_logger(__name__)

_SECOND = 1_000_000

OnLoss = Callable[[Window], None]
"""Called with the span of write times of rows that were lost before they were read."""


def lost_since(
    cursor: Checkpoint, now: Micros, mode: DataLossMode, missed: Iterable[Window] = ()
) -> Window:
    """Return the span of write times, from the position on, whose rows are gone by `now` (µs).

    `missed` are the unread windows of generations that were announced late.

    A reader that reports a loss must be certain of it. A reader that takes a new snapshot after a
    loss, according to `mode`, must not overlook a loss, so rows that may have expired, or soon
    will, count as well. If the position was chosen rather than reached by reading, it
    may be before the log's creation. The time before the creation is then excluded.
    """
    ttls, position = cursor.ttls, cursor.position
    gone = ttls.endangered if mode is DataLossMode.RESNAPSHOT else ttls.lost
    unread = [*missed, Window(position, FOREVER)]
    found = [lost for it in unread if not (lost := gone(it.start, now, it.end)).is_empty]
    if not found:
        return Window(position, position)
    lost = reduce(Window.hull, found)
    return lost if cursor.has_read else since_created(lost, ttls.created, now)


def refuse_endless_snapshots(
    option: str, ttl: int, needed: int, behind: str = "the confidence window"
) -> None:
    """Raise ConfigurationError, naming `option`, if the log's TTL is too short for new snapshots.

    A reader is always at least `needed` µs behind the present. If rows of that age are already
    `endangered`, because the TTL of `ttl` seconds is short, each new snapshot is followed by
    another. `behind` names what keeps the reader behind.
    """
    shortest = max(needed + EARLY, min(needed + SOON, needed * 10 // 9)) // _SECOND + 1
    if 0 < ttl < shortest:
        remedy = (
            f"the log keeps changes for {ttl} s, so each snapshot would be followed by another: "
            f"set the table's cdc ttl to {shortest} or more, or shorten {behind}"
        )
        raise ConfigurationError(option, DataLossMode.RESNAPSHOT, remedy)


def report_loss(
    lost: Window, table: TableName, ttls: TtlHistory, mode: DataLossMode, remedy: str
) -> None:
    """Report that rows of `table` written in `lost` are gone, according to `ttls`.

    If `mode` is ``continue``, logs a warning. Otherwise raises DataLossError, whose message ends
    with `remedy`. Does nothing if `lost` is empty.
    """
    if mode is DataLossMode.CONTINUE or lost.is_empty:
        warn_of_loss(lost, table)
        return
    if lost.start < ttls.log_lost:
        again = format_timestamp(log_created(ttls.logs[-1]))
        raise DataLossError(
            f"rows of {table} written in {lost} are gone: the log was dropped, and created again "
            f"at {again}; {remedy}",
            lost.start,
            lost.end,
        )
    raise DataLossError(
        f"rows of {table} written in {lost} may have expired before they were read; {remedy}",
        lost.start,
        lost.end,
    )


def warn_of_loss(lost: Window, table: TableName, remedy: str | None = None) -> None:
    """Log a warning that rows written in `lost` are gone, unless `lost` is empty.

    The warning contains the `remedy`, if there is one.
    """
    if lost.is_empty:
        return
    start, end = format_timestamp(lost.start), format_timestamp(lost.end)
    more = {} if remedy is None else {"remedy": remedy}
    log.warning("rows_lost", table=str(table), start=start, end=end, **more)


@define
class LossReporter:
    """Checks a read for lost rows, and reports them, each at most once, with `report_loss`.

    `on_loss` is called after a warning. Windows must be read in chronological order, except for
    windows of generations that were announced late.
    """

    _mode: DataLossMode
    _remedy: str
    _on_loss: OnLoss | None = None
    _judged: Micros = BEGINNING
    """Rows written before this time were reported, read in time, or not requested."""
    _judged_at_start: Micros = field(default=BEGINNING, init=False)
    """Rows written before this time were reported before the read began, or not requested."""
    _windows_reported: list[Window] = field(factory=list, init=False)

    def begin(self, position: Micros, ttls: TtlHistory, now: Micros, *, at_oldest: bool) -> None:
        """Begin a read at `now` (µs) from a position that no earlier read reached.

        If `at_oldest` is True, the read requests only rows that the log still contains, so rows
        that expire soon may be missing without a report. For any other position, rows that have
        expired by now were reported when the position was chosen.
        """
        span = ttls.unpromised(position, now) if at_oldest else ttls.lost(position, now)
        self._judged = self._judged_at_start = max(self._judged, span.end)

    def report_unread(self, lost: Window, table: TableName, ttls: TtlHistory) -> None:
        """Report the loss of the unread rows written in `lost`.

        A loss that continues is reported again only when it has grown by a minute. `check_read`
        reports the rest of the loss.
        """
        if lost.start >= self._judged or lost.end >= self._judged + GRACE:
            self._report_expired(lost, table, ttls)

    def check_read(
        self,
        window: Window,
        ttls: TtlHistory,
        now: Micros,
        table: TableName,
        *,
        is_chosen: bool = False,
    ) -> None:
        """Report rows of `window` that may have expired by `now` (µs), the end of the read.

        If `is_chosen` is True, the window's start was chosen rather than reached by reading, so it
        may be before the log's creation.
        """
        lost = ttls.expired(window.start, now)
        if is_chosen:
            lost = since_created(lost, ttls.created, now)
        self._report_expired(lost.intersect(window), table, ttls)

    def check_late(self, window: Window, ttls: TtlHistory, now: Micros, table: TableName) -> None:
        """Report rows of a late-announced generation that may have expired by `now` (µs).

        Unlike in `check_read`, later windows of other generations may have been read before.
        """
        lost = ttls.expired(window.start, now, window.end)
        start = max(lost.start, self._judged_at_start)
        for reported in (
            *sorted(self._windows_reported, key=lambda reported: reported.start),
            Window(lost.end, lost.end),
        ):
            if start < (end := min(reported.start, lost.end)):
                self._report_window(Window(start, end), table, ttls)
            start = max(start, reported.end)

    def _report_expired(self, lost: Window, table: TableName, ttls: TtlHistory) -> None:
        start = max(lost.start, self._judged)
        if start < lost.end:
            self._judged = lost.end
            self._report_window(Window(start, lost.end), table, ttls)

    def _report_window(self, lost: Window, table: TableName, ttls: TtlHistory) -> None:
        self._windows_reported.append(lost)
        report_loss(lost, table, ttls, self._mode, self._remedy)
        if self._on_loss is not None:
            self._on_loss(lost)


class FollowerLosses:
    """Reports the losses of a follower, which began at the checkpoint `start`.

    If `at_oldest` is True, the follower began with whatever the log still contained.
    """

    def __init__(
        self,
        mode: DataLossMode,
        start: Checkpoint,
        on_loss: OnLoss | None = None,
        *,
        at_oldest: bool = False,
    ) -> None:
        self._mode = mode
        self._start = start
        self._at_oldest = at_oldest or start.position == BEGINNING
        is_stored = start.has_read or start.table_id is not None
        self._is_resumed = is_stored and not at_oldest
        self._reporter = LossReporter(
            mode,
            "expected a reader that reads them in time: start over, or set data_loss to 'continue'",
            on_loss,
        )

    def begin(self, cursor: Checkpoint, now: Micros, table: TableName) -> None:
        """Begin to read at `now` (µs) from the position of `cursor`."""
        if self._is_resumed:
            if cursor.position > BEGINNING:
                self.report(cursor, now, table)
        else:
            at_oldest = self._at_oldest
            self._reporter.begin(cursor.position, cursor.ttls, now, at_oldest=at_oldest)

    def report(
        self, cursor: Checkpoint, now: Micros, table: TableName, missed: Iterable[Window] = ()
    ) -> None:
        """Report which rows are gone: from the cursor on, or in the windows `missed`."""
        at = evolve(self._start, position=cursor.position, ttls=cursor.ttls)
        lost = lost_since(at, now, self._mode, missed)
        self._reporter.report_unread(lost, table, cursor.ttls)

    def check_read(
        self,
        window: Window,
        cursor: Checkpoint,
        now: Micros,
        table: TableName,
        *,
        late: bool = False,
    ) -> None:
        """Report which rows of `window` may have expired before they were read.

        `late` is True for a generation that was announced after later windows were read. If a new
        snapshot of the table follows each loss, rows that expire soon count as well.
        """
        ttls = cursor.ttls
        if window.start == BEGINNING:
            return
        if self._mode is DataLossMode.RESNAPSHOT:
            self.report(cursor, now, table, [window])
        elif late:
            self._reporter.check_late(window, ttls, now, table)
        else:
            is_chosen = not self._start.has_read
            self._reporter.check_read(window, ttls, now, table, is_chosen=is_chosen)
