"""Computes which rows of a log are gone, and reports rows that were lost before they were read.

Rows are gone when they expire, or all at once when the log is dropped and created again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any
from uuid import UUID

from attrs import define, evolve, field, frozen

from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, FOREVER, Micros, format_timestamp
from cdc_reader.config import DataLossMode
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import TableSchema, TableState
from cdc_reader.errors import ConfigurationError, DataLossError
from cdc_reader.streams.window import Window

log = get_logger(__name__)

_GRACE = 60_000_000
"""µs by which a row may outlive its TTL, if the TTL is counted from its write time.

The server counts the TTL from the row's arrival, which is later."""
_EARLY = 10_000_000
"""µs by which a row may expire too early, if its TTL is counted from its write time.

Clocks differ, and clients' clocks may be ahead of the servers'."""
_SOON = 600_000_000
"""Rows that expire within this time (µs) may expire before a reader reaches them."""
_SECOND = 1_000_000

OnLoss = Callable[[Window], None]
"""Called with the span of write times of rows that were lost before they were read."""


def _changes(given: Iterable[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    """Return the changes as a tuple.

    Raises ValueError unless they are pairs of integers, earliest first, with TTLs of 0 or more.
    """
    changes = tuple((since, seconds) for since, seconds in given)
    numbers = [number for change in changes for number in change]
    if not all(type(number) is int for number in numbers):
        raise ValueError("the history of a TTL must hold whole numbers")
    if any(seconds < 0 for _, seconds in changes) or list(changes) != sorted(changes):
        raise ValueError("the history of a TTL must be in order of time")
    return changes


def _logs(given: Iterable[UUID]) -> tuple[UUID, ...]:
    """Return the ids as a tuple; raise ValueError if one of them is not a UUID."""
    logs = tuple(given)
    if not all(isinstance(log_id, UUID) for log_id in logs):
        raise ValueError("the ids of a log must be UUIDs")
    return logs


def _created(log_id: UUID) -> Micros:
    created = timeuuid.created(log_id)
    return BEGINNING if created is None else created


@frozen
class TtlHistory:
    """The history of a log: the changes to its TTL, and its ids, each earliest first.

    The TTL in force when a row was written determines when it expires. The TTL of the first known
    change also applies to older rows. Without changes, no row expires.

    A log that is dropped and created again gets a new id, and its earlier rows are gone. Without
    `logs`, it is unknown which log was read.
    """

    changes: tuple[tuple[int, int], ...] = field(default=(), converter=_changes)
    """Each change: a time, in µs, and the TTL in force from then on, in seconds (0: none)."""
    logs: tuple[UUID, ...] = field(default=(), converter=_logs)
    log_lost: Micros = field()
    """The time, in µs, before which all rows are gone because their log was dropped.

    It is BEGINNING if no log was dropped.
    """

    @log_lost.default
    def _created_last(self) -> Micros:
        return max(map(_created, self.logs[1:]), default=BEGINNING)

    @classmethod
    def from_json(cls, changes: Iterable[Sequence[int]], stored: Mapping[str, Any]) -> TtlHistory:
        """Return the history with these changes, and with the logs in `stored`.

        `stored` contains the items that `logs_to_json` returned. Raises ValueError, TypeError or
        AttributeError for invalid values.
        """
        history = cls(changes, map(UUID, stored.get("logs", ())))
        return evolve(history, log_lost=int(stored.get("log_lost", history.log_lost)))

    def logs_to_json(self) -> dict[str, Any]:
        """Return the ids of the logs as JSON, with `log_lost` if there are several.

        The result is empty if there are no ids.
        """
        if not self.logs:
            return {}
        lost = {"log_lost": self.log_lost} if len(self.logs) > 1 else {}
        return {"logs": list(map(str, self.logs)), **lost}

    @property
    def seconds(self) -> int:
        """The TTL in force, in seconds; 0 if rows never expire."""
        return self.changes[-1][1] if self.changes else 0

    @property
    def created(self) -> Micros | None:
        """The time at which the first of the `logs` was created, in µs, or None if unknown."""
        return timeuuid.created(self.logs[0]) if self.logs else None

    def updated(self, table: TableState | TableSchema, now: Micros, position: Micros) -> TtlHistory:
        """Return the history, updated with the table's state at `now` (µs).

        A new TTL and a new log are added to the history. `position` is where reading resumes, in
        µs. Rows from the position on were still to be read from the last known log. If a new log
        has replaced that log, at least the row at the position is gone. This holds even if the new
        log's id suggests an earlier creation, because the id contains the time of one node's clock.
        """
        seen = self.seen(table.cdc.ttl, now, table.altered)
        if table.log_id is None or table.log_id in self.logs[-1:]:
            return seen
        if not self.logs:
            return evolve(seen, logs=(table.log_id,))
        lost = max(self.log_lost, _created(table.log_id), position + 1)
        return evolve(seen, logs=(*self.logs, table.log_id), log_lost=lost)

    def seen(self, seconds: int, now: Micros, altered: Micros | None = None) -> TtlHistory:
        """Return the history, with the TTL in force at `now` (µs) added if it is new.

        A new TTL applies from `altered`, the time of the table's last change, or from `now` if
        the server does not report that time.
        """
        if self.changes and self.seconds == seconds:
            return self
        since = now if altered is None else altered
        if self.changes:
            since = max(since, self.changes[-1][0] + 1)
        return evolve(self, changes=(*self.changes, (since, seconds)))

    def after(self, position: Micros) -> TtlHistory:
        """Return the part of the history that applies to rows since `position` (µs)."""
        begun = [number for number, (since, _) in enumerate(self.changes) if since <= position]
        changes = self.changes[begun[-1] if begun else 0 :]
        if self.log_lost > position:
            return evolve(self, changes=changes)
        return TtlHistory(changes, self.logs[-1:])

    def lost(self, position: Micros, now: Micros) -> Window:
        """Return the span of write times whose unread rows are lost at `now` (µs).

        The span begins no earlier than `position` (µs). If some row since `position` is certainly
        lost, the span covers all rows since then that may be lost. Otherwise it is empty.
        """
        sure = self._gone(position, now, lambda _: -_GRACE)
        return sure if sure.is_empty else self.expired(position, now)

    def expired(self, position: Micros, now: Micros) -> Window:
        """Return the span of write times whose rows may have expired by `now` (µs).

        The span begins no earlier than `position` (µs), and reaches from the first write time of
        these rows to the last. No other row since `position` has expired.
        """
        return self._gone(position, now, lambda _: _EARLY)

    def endangered(self, position: Micros, now: Micros) -> Window:
        """Return the span of write times whose rows may have expired by `now`, or soon will.

        This is the span of `expired`, extended so that no other row since `position` expires within
        ten minutes, or within a tenth of the TTL if that is shorter.
        """
        return self._gone(position, now, lambda ttl: max(_EARLY, min(_SOON, ttl // 10)))

    def unpromised(self, position: Micros, now: Micros) -> Window:
        """Return the span of write times whose rows may be gone before a new reader reads them.

        The reader begins at `now` (µs). This is the span of `endangered`, extended so that no other
        row since `position` expires within a minute, or within half of the TTL if that is shorter.
        """
        return self._gone(
            position,
            now,
            lambda ttl: _EARLY + min(_SOON, max(ttl // 10, min(_GRACE, ttl // 2))),
        )

    def _gone(self, position: Micros, now: Micros, ahead: Callable[[int], int]) -> Window:
        """Return the span of write times, from `position` on, whose rows are gone at `now`.

        All times are in µs. Rows with a TTL of `ttl` count as gone once their age reaches
        ``ttl - ahead(ttl)``.
        """
        expired = [
            Window(max(span.start, position), min(span.end, now - ttl + ahead(ttl)))
            for span, ttl in ((span, seconds * _SECOND) for span, seconds in self.spans())
            if ttl
        ]
        spans = (Window(position, self.log_lost), *expired)
        gone = [window for window in spans if not window.is_empty]
        return reduce(Window.hull, gone) if gone else Window(position, position)

    def at(self, micros: Micros) -> int:
        """Return the TTL, in seconds, of a row written at `micros`, or 0 if it never expires."""
        return next((seconds for span, seconds in self.spans() if micros in span), 0)

    def kept_since(self, now: Micros) -> Micros:
        """Return the earliest write time (µs) of rows that still exist at `now` (µs).

        The result is BEGINNING if no row is gone.
        """
        for span, seconds in self.spans():
            start = max(span.start, now - seconds * _SECOND) if seconds else span.start
            if start < span.end:
                return max(start, self.log_lost)
        return self.log_lost

    def oldest_kept(self, now: Micros) -> Micros:
        """Return the earliest write time, in µs, of rows that may exist at `now`.

        Rows that arrive after their write time exist a little longer than `kept_since` assumes.
        """
        return self.kept_since(now - _GRACE)

    def expires(self, position: Micros) -> Micros:
        """Return the time (µs) at which the first row since `position` (µs) expires, or FOREVER.

        Rows of a dropped log count as having expired when the new log was created.
        """
        if position < self.log_lost:
            return self.log_lost
        return min(
            (
                max(span.start, position) + seconds * _SECOND
                for span, seconds in self.spans()
                if seconds and span.end > position
            ),
            default=FOREVER,
        )

    def spans(self) -> Iterator[tuple[Window, int]]:
        """Yield spans of write times, each with its TTL in seconds.

        Without changes, nothing is yielded.
        """
        edges = [BEGINNING, *(since for since, _ in self.changes[1:]), FOREVER]
        for (start, end), (_, seconds) in zip(pairwise(edges), self.changes, strict=False):
            if start < end:  # of two changes at the same time, the last one counts
                yield Window(start, end), seconds


def first_written(created: Micros) -> Micros:
    """Return the earliest write time (µs) of rows in a log that was created at `created` (µs).

    Clients may choose a write time up to a minute before they write.
    """
    return created - _GRACE


def since_created(lost: Window, created: Micros | None, now: Micros) -> Window:
    """Return the part of `lost` in which a log created at `created` can have rows.

    All times are in µs. The log's rows may be written as early as `first_written`. The part is
    empty if even the log's first row cannot have expired yet. A creation time after `now` comes
    from another clock, and is ignored.
    """
    if created is None or created > now:
        return lost
    if lost.end <= created:
        return Window(created, created)
    return Window(max(lost.start, first_written(created)), lost.end)


def refuse_endless_snapshots(
    option: str, ttl: int, needed: int, behind: str = "the confidence window"
) -> None:
    """Raise ConfigurationError, naming `option`, if the log's TTL is too short for new snapshots.

    A reader is always at least `needed` µs behind the present. If rows of that age are already
    `endangered`, because the TTL of `ttl` seconds is short, each new snapshot is followed by
    another. `behind` names what keeps the reader behind.
    """
    shortest = max(needed + _EARLY, min(needed + _SOON, needed * 10 // 9)) // _SECOND + 1
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
        again = format_timestamp(_created(ttls.logs[-1]))
        raise DataLossError(
            f"rows of {table} written in {lost} are gone: the log was dropped, and created again "
            f"at {again}; {remedy}",
            lost.start,
            lost.end,
        )
    raise DataLossError(
        f"rows of {table} written in {lost} expired before they were read; {remedy}",
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
    _named: Micros = BEGINNING
    """Rows written before this time were reported, read in time, or not requested."""
    _begun: Micros = field(default=BEGINNING, init=False)
    """Rows written before this time were reported before the read began, or not requested."""
    _told: list[Window] = field(factory=list, init=False)

    def begin(self, position: Micros, ttls: TtlHistory, now: Micros, *, at_oldest: bool) -> None:
        """Begin a read at `now` (µs) from a position that no earlier read reached.

        If `at_oldest` is True, the read requests only rows that the log still contains, so rows
        that expire soon may be missing without a report. For any other position, rows that have
        expired by now were reported when the position was chosen.
        """
        span = ttls.unpromised(position, now) if at_oldest else ttls.lost(position, now)
        self._named = self._begun = max(self._named, span.end)

    def report_unread(self, lost: Window, table: TableName, ttls: TtlHistory) -> None:
        """Report the loss of the unread rows written in `lost`.

        A loss that continues is reported again only when it has grown by a minute. `check_read`
        reports the rest of the loss.
        """
        if lost.start >= self._named or lost.end >= self._named + _GRACE:
            self._report(lost, table, ttls)

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
        self._report(lost.intersect(window), table, ttls)

    def check_late(self, window: Window, ttls: TtlHistory, now: Micros, table: TableName) -> None:
        """Report rows of a late-announced generation that may have expired by `now` (µs).

        Unlike in `check_read`, later windows of other generations may have been read before.
        """
        lost = ttls.expired(window.start, now).intersect(window)
        start = max(lost.start, self._begun)
        for reported in (
            *sorted(self._told, key=lambda reported: reported.start),
            Window(lost.end, lost.end),
        ):
            if start < (end := min(reported.start, lost.end)):
                self._tell(Window(start, end), table, ttls)
            start = max(start, reported.end)

    def _report(self, lost: Window, table: TableName, ttls: TtlHistory) -> None:
        start = max(lost.start, self._named)
        if start < lost.end:
            self._named = lost.end
            self._tell(Window(start, lost.end), table, ttls)

    def _tell(self, lost: Window, table: TableName, ttls: TtlHistory) -> None:
        self._told.append(lost)
        report_loss(lost, table, ttls, self._mode, self._remedy)
        if self._on_loss is not None:
            self._on_loss(lost)
