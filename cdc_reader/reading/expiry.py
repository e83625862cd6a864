"""Computes which rows of a log are gone.

Rows are gone when they expire, or all at once when the log is dropped and created again.
`reading.loss` reports rows that were lost before they were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any
from uuid import UUID

from attrs import evolve, field, frozen

from cdc_reader._time import BEGINNING, FOREVER, Micros
from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import TableSchema, TableState
from cdc_reader.streams.window import Window

GRACE = 60_000_000
"""µs by which a row may outlive its TTL, if the TTL is counted from its write time.

The server counts the TTL from the row's arrival, which is later."""
EARLY = 10_000_000
"""µs by which a row may expire too early, if its TTL is counted from its write time.

Clocks differ, and clients' clocks may be ahead of the servers'."""
SOON = 600_000_000
"""Rows that expire within this time (µs) may expire before a reader reaches them."""
MOST_CHANGES = 64
"""The maximum number of changes that a history keeps; the first one stands for older ones."""
_SECOND = 1_000_000


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


def log_created(log_id: UUID) -> Micros:
    """Return when the log with this id was created, in µs, or BEGINNING if the id does not say."""
    created = timeuuid.created(log_id)
    return BEGINNING if created is None else created


@frozen
class TtlHistory:
    """The history of a log: the changes to its TTL, and its ids, each earliest first.

    The TTL in force when a row was written determines when it expires. The TTL of the first known
    change also applies to older rows. Without changes, no row expires.

    A log that is dropped and created again gets a new id, and its earlier rows are gone. Without
    `logs`, it is unknown which log was read. The last two ids are kept.

    Changes are kept even if the reader is past them: a generation that is announced late has rows
    that were written under earlier TTLs.
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
        return max(map(log_created, self.logs[1:]), default=BEGINNING)

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
        lost = max(self.log_lost, log_created(table.log_id), position + 1)
        return evolve(seen, logs=(self.logs[-1], table.log_id), log_lost=lost)

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
        changes = (*self.changes, (since, seconds))
        return evolve(self, changes=changes[-MOST_CHANGES:])

    def lost(self, position: Micros, now: Micros, until: Micros = FOREVER) -> Window:
        """Return the span of write times whose unread rows are lost at `now` (µs).

        The unread rows were written from `position` on, and before `until` (µs). If some of them
        are certainly lost, the span covers all of them that may be lost. Otherwise it is empty.
        """
        sure = self._gone(position, now, lambda _: -GRACE, until)
        return sure if sure.is_empty else self.expired(position, now, until)

    def expired(self, position: Micros, now: Micros, until: Micros = FOREVER) -> Window:
        """Return the span of write times whose rows may have expired by `now` (µs).

        The rows were written from `position` on, and before `until` (µs). The span reaches from the
        first write time of such rows to the last. No other row has expired.
        """
        return self._gone(position, now, lambda _: EARLY, until)

    def endangered(self, position: Micros, now: Micros, until: Micros = FOREVER) -> Window:
        """Return the span of write times whose rows may have expired by `now`, or soon will.

        This is the span of `expired`, extended so that no other row since `position` expires within
        ten minutes, or within a tenth of the TTL if that is shorter.
        """
        return self._gone(position, now, lambda ttl: max(EARLY, min(SOON, ttl // 10)), until)

    def unpromised(self, position: Micros, now: Micros) -> Window:
        """Return the span of write times whose rows may be gone before a new reader reads them.

        The reader begins at `now` (µs). This is the span of `endangered`, extended so that no other
        row since `position` expires within a minute, or within half of the TTL if that is shorter.
        """
        return self._gone(
            position,
            now,
            lambda ttl: EARLY + min(SOON, max(ttl // 10, min(GRACE, ttl // 2))),
        )

    def _gone(
        self,
        position: Micros,
        now: Micros,
        ahead: Callable[[int], int],
        until: Micros = FOREVER,
    ) -> Window:
        """Return the span of write times, from `position` to `until`, whose rows are gone at `now`.

        All times are in µs. Rows with a TTL of `ttl` count as gone once their age reaches
        ``ttl - ahead(ttl)``.
        """
        expired = [
            Window(max(span.start, position), min(span.end, now - ttl + ahead(ttl)))
            for span, ttl in ((span, seconds * _SECOND) for span, seconds in self.spans())
            if ttl
        ]
        spans = (Window(position, self.log_lost), *expired)
        within = (window.intersect(Window(position, until)) for window in spans)
        gone = [window for window in within if not window.is_empty]
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
        return self.kept_since(now - GRACE)

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
    return created - GRACE


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
