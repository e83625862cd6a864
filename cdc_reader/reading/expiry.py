"""Computes which rows of a log are gone, and reports rows that were lost before they were read.

Rows expire, and are gone all at once if the log is dropped and created again.
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

The server counts it from the row's arrival, which is later."""
_EARLY = 10_000_000
"""µs by which a row may expire too early, if its TTL is counted from its write time.

Clocks differ, and clients' clocks may be ahead of the servers'."""
_SOON = 600_000_000
"""Rows that expire within this time (µs) may expire before a reader reaches them."""
_SECOND = 1_000_000

OnLoss = Callable[[Window], None]
"""Called with the span of write times of rows that were lost before they were read."""

Change = tuple[int, int]
"""A time, in µs, and the TTL in force from then on, in seconds (0: rows never expire)."""


def _changes(given: Iterable[Sequence[int]]) -> tuple[Change, ...]:
    """Return the pairs; raise ValueError unless they are integers, earliest first."""
    changes = tuple((since, seconds) for since, seconds in given)
    numbers = [number for change in changes for number in change]
    if not all(type(number) is int for number in numbers):
        raise ValueError("the history of a TTL must hold whole numbers")
    if any(seconds < 0 for _, seconds in changes) or list(changes) != sorted(changes):
        raise ValueError("the history of a TTL must be in order of time")
    return changes


def _logs(given: Iterable[UUID]) -> tuple[UUID, ...]:
    """Return the ids; raise ValueError for any other value."""
    logs = tuple(given)
    if not all(isinstance(log_id, UUID) for log_id in logs):
        raise ValueError("the ids of a log must be UUIDs")
    return logs


def _created(log_id: UUID) -> Micros:
    created = timeuuid.created(log_id)
    return BEGINNING if created is None else created


@frozen
class TtlHistory:
    """The changes to a log's TTL, and the ids of its table, earliest first.

    The TTL in force when a row was written determines when it expires. Rows older than the first
    known change use that change's TTL. With no changes, no row expires.

    A log that is dropped and created again gets a new id, and its earlier rows are gone. Without
    `logs`, it is unknown which log was read.
    """

    changes: tuple[Change, ...] = field(default=(), converter=_changes)
    logs: tuple[UUID, ...] = field(default=(), converter=_logs)
    log_lost: Micros = field()
    """The time, in µs, before which all rows are gone because their log was dropped.

    BEGINNING if no log was dropped.
    """

    @log_lost.default
    def _created_last(self) -> Micros:
        return max(map(_created, self.logs[1:]), default=BEGINNING)

    @classmethod
    def from_json(cls, changes: Iterable[Sequence[int]], stored: Mapping[str, Any]) -> TtlHistory:
        """Return the history of these changes, with the logs that `logs_to_json` stored.

        Raises ValueError, TypeError or AttributeError for any other value.
        """
        history = cls(changes, map(UUID, stored.get("logs", ())))
        return evolve(history, log_lost=int(stored.get("log_lost", history.log_lost)))

    def logs_to_json(self) -> dict[str, Any]:
        """Return the ids of the logs, with `log_lost` if there are several; empty if none."""
        if not self.logs:
            return {}
        lost = {"log_lost": self.log_lost} if len(self.logs) > 1 else {}
        return {"logs": list(map(str, self.logs)), **lost}

    @property
    def seconds(self) -> int:
        """The TTL in force; 0 for none."""
        return self.changes[-1][1] if self.changes else 0

    @property
    def created(self) -> Micros | None:
        """When the first of the `logs` was created, in µs; None if unknown."""
        return timeuuid.created(self.logs[0]) if self.logs else None

    def updated(self, table: TableState | TableSchema, now: Micros, position: Micros) -> TtlHistory:
        """Return the history, extended by what is new in the table's state at `now` (µs).

        `position` is where reading resumes, in µs. Rows from there on were still to be read from
        the known log. If a new log has replaced it, at least the row at the position is gone, even
        if the new log's id, which contains the time of one node's clock, suggests an earlier
        creation.
        """
        seen = self.seen(table.cdc.ttl, now, table.altered)
        if table.log_id is None or table.log_id in self.logs[-1:]:
            return seen
        if not self.logs:
            return evolve(seen, logs=(table.log_id,))
        lost = max(self.log_lost, _created(table.log_id), position + 1)
        return evolve(seen, logs=(*self.logs, table.log_id), log_lost=lost)

    def seen(self, seconds: int, now: Micros, altered: Micros | None = None) -> TtlHistory:
        """Return the history, extended if the TTL in force at `now` (µs) is new.

        A new TTL counts from `altered`, the time of the table's last change, or from `now` if
        the server does not report it.
        """
        if self.changes and self.seconds == seconds:
            return self
        since = now if altered is None else altered
        if self.changes:
            since = max(since, self.changes[-1][0] + 1)
        return evolve(self, changes=(*self.changes, (since, seconds)))

    def after(self, position: Micros) -> TtlHistory:
        """Return the part that applies to rows written at `position` (µs) or later."""
        begun = [number for number, (since, _) in enumerate(self.changes) if since <= position]
        changes = self.changes[begun[-1] if begun else 0 :]
        if self.log_lost > position:
            return evolve(self, changes=changes)
        return TtlHistory(changes, self.logs[-1:])

    def lost(self, position: Micros, now: Micros) -> Window:
        """Return the span of write times, from `position` on, that a reader has lost by `now` (µs).

        Empty if no row has certainly expired; else it covers all rows that may have expired.
        """
        sure = self._gone(position, now, lambda _: -_GRACE)
        return sure if sure.is_empty else self.expired(position, now)

    def expired(self, position: Micros, now: Micros) -> Window:
        """Return the span, from `position` on, of rows that may have expired by `now` (µs).

        The span reaches from the first write time of these rows to the last. No row outside the
        span has expired.
        """
        return self._gone(position, now, lambda _: _EARLY)

    def endangered(self, position: Micros, now: Micros) -> Window:
        """Return the span, from `position` on, in which rows may have expired, or soon will.

        Like `expired`, but no row outside the span expires within ten minutes, or within a tenth of
        the TTL if that is shorter.
        """
        return self._gone(position, now, lambda ttl: max(_EARLY, min(_SOON, ttl // 10)))

    def unpromised(self, position: Micros, now: Micros) -> Window:
        """Return the span, from `position` on, that a reader that begins at `now` (µs) may miss.

        Like `endangered`, but no row outside the span expires within a minute either, or within
        half of the TTL if that is shorter.
        """
        return self._gone(
            position,
            now,
            lambda ttl: _EARLY + min(_SOON, max(ttl // 10, min(_GRACE, ttl // 2))),
        )

    def _gone(self, position: Micros, now: Micros, ahead: Callable[[int], int]) -> Window:
        """Return the span, from `position` on, of rows that are gone at `now`; all times in µs.

        Rows with a TTL of `ttl` count as gone once their age reaches ``ttl - ahead(ttl)``.
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
        """Return the TTL, in seconds, of a row written at `micros`; 0 for none."""
        return next((seconds for span, seconds in self.spans() if micros in span), 0)

    def kept_since(self, now: Micros) -> Micros:
        """Return the earliest write time (µs) of rows that exist at `now`; BEGINNING if all do."""
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
        """Return when the first row written at `position` or later expires (µs), or FOREVER.

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
        """Yield spans of write times, each with its TTL in seconds; without changes, yield none."""
        edges = [BEGINNING, *(since for since, _ in self.changes[1:]), FOREVER]
        for (start, end), (_, seconds) in zip(pairwise(edges), self.changes, strict=False):
            if start < end:  # of two changes at the same time, the last one counts
                yield Window(start, end), seconds


def first_written(created: Micros) -> Micros:
    """Return the earliest write time of rows in a log that was created at `created`, in µs.

    Clients may choose a write time up to a minute before they write.
    """
    return created - _GRACE


def since_created(lost: Window, created: Micros | None, now: Micros) -> Window:
    """Return the part of `lost` in which a log created at `created` can have rows.

    All times in µs; `first_written` tells how early rows may be written. Empty if even the first
    row cannot have expired yet. A creation time after `now` comes from another clock, and is
    ignored.
    """
    if created is None or created > now:
        return lost
    if lost.end <= created:
        return Window(created, created)
    return Window(max(lost.start, first_written(created)), lost.end)


def refuse_endless_snapshots(option: str, ttl: int, needed: int) -> None:
    """Raise ConfigurationError, naming `option`, if each new snapshot would be followed by another.

    This happens if rows of a log with a TTL of `ttl` seconds are endangered `needed` µs after they
    were written. A reader is always at least that far behind.
    """
    shortest = max(needed + _EARLY, min(needed + _SOON, needed * 10 // 9)) // _SECOND + 1
    if 0 < ttl < shortest:
        remedy = (
            f"the log keeps changes for {ttl} s, so each snapshot would be followed by another: "
            f"set the table's cdc ttl to {shortest} or more, or shorten the confidence window"
        )
        raise ConfigurationError(option, DataLossMode.RESNAPSHOT, remedy)


def report_loss(
    lost: Window, table: TableName, ttls: TtlHistory, mode: DataLossMode, remedy: str
) -> None:
    """Report that rows of `table` written in `lost` are gone, according to `ttls`.

    Logs a warning if `mode` is ``continue``; otherwise raises DataLossError, whose message ends
    with `remedy`. Does nothing if `lost` is empty.
    """
    if mode == DataLossMode.CONTINUE or lost.is_empty:
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


def warn_of_loss(lost: Window, table: TableName) -> None:
    """Warn that rows written in `lost` are gone; do nothing if it is empty."""
    if lost.is_empty:
        return
    start, end = format_timestamp(lost.start), format_timestamp(lost.end)
    log.warning("rows_lost", table=str(table), start=start, end=end)


@define
class LossReporter:
    """Checks a read for losses; reports each write time at most once, with `report_loss`.

    `on_loss` is called after a warning. Windows must be read in chronological order, except for
    windows of generations that were announced late.
    """

    _mode: DataLossMode
    _remedy: str
    _on_loss: OnLoss | None = None
    _named: Micros = BEGINNING
    """Rows written before this time were reported, read in time, or not requested."""
    _begun: Micros = field(default=BEGINNING, init=False)
    """Rows written before this time were reported before, or not requested."""
    _told: list[Window] = field(factory=list, init=False)

    def begin(self, position: Micros, ttls: TtlHistory, now: Micros, *, at_oldest: bool) -> None:
        """Begin a read at `now` (µs) from a position that no earlier read reached.

        A read that begins `at_oldest` requests only rows that the log still holds, so rows that
        expire soon may be missing without a report. For any other position, rows that have expired
        by now were reported when the position was chosen.
        """
        span = ttls.unpromised(position, now) if at_oldest else ttls.lost(position, now)
        self._named = self._begun = max(self._named, span.end)

    def report_unread(self, lost: Window, table: TableName, ttls: TtlHistory) -> None:
        """Report the loss of the unread rows written in `lost`.

        A loss that continues is reported again only when it has grown by a minute; `check_read`
        reports the rest.
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
        """Report rows of `window` that may have expired by `now` (µs), when its read was complete.

        If the start `is_chosen`, not reached by reading, it may be before the log's creation.
        """
        lost = ttls.expired(window.start, now)
        if is_chosen:
            lost = since_created(lost, ttls.created, now)
        self._report(lost.intersect(window), table, ttls)

    def check_late(self, window: Window, ttls: TtlHistory, now: Micros, table: TableName) -> None:
        """Like `check_read`, for a generation read after later windows of other generations."""
        lost = ttls.expired(window.start, now).intersect(window)
        start = max(lost.start, self._begun)
        for told in (*sorted(self._told, key=lambda told: told.start), Window(lost.end, lost.end)):
            if start < (end := min(told.start, lost.end)):
                self._tell(Window(start, end), table, ttls)
            start = max(start, told.end)

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
