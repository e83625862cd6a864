"""The observed history of logs: the lag of readers, and the number of rows written.

A history is bounded: if it grows too long, the older half keeps every second point, and spans of
counted rows are joined in pairs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median

from attrs import astuple, define, field, frozen

from cdc_reader._time import Micros
from cdc_reader.cli.status.readers import SECOND, duration_text
from cdc_reader.cli.status.state import Status
from cdc_reader.cql.names import TableName

_MOST = 2_000
"""The maximum number of points of a reader, and of spans of a table."""
_RECENT = 60 * SECOND
"""µs over which rates and trends are averaged."""
_SURE = 10 * SECOND
"""The minimum time span, in µs, from which a trend is derived."""
_STEADY = 0.3
"""A lag is steady if it changes by less than this, in seconds per second.

The lag rises and falls even if the reader keeps up, because its position moves in steps."""
_GAP = 5
"""Points further apart than this multiple of the usual distance are not connected."""
_VERSION = 1


@frozen
class Point:
    """A reader's state at one time: its lag, and the time until unread rows expire; all in µs."""

    at: Micros
    lag: int | None
    left: int | None


@frozen
class Counted:
    """The number of rows written from `start` to `end` (µs), and of late rows.

    `late` is the number of late rows found while the other rows were counted.
    """

    start: Micros
    end: Micros
    rows: int
    late: int

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows * SECOND / (self.end - self.start)

    def joined(self, later: Counted) -> Counted:
        """Return one span that replaces this span and `later`."""
        return Counted(self.start, later.end, self.rows + later.rows, self.late + later.late)


@define
class Counts:
    """The row counts of a table, as spans in chronological order, possibly with gaps."""

    spans: list[Counted] = field(factory=list)
    late_scan_at: Micros | None = None
    """The time, in µs, of the last search for late rows; None if there was none."""

    def add(self, spans: Iterable[Counted]) -> None:
        """Append spans; join old spans if there are too many."""
        self.spans.extend(span for span in spans if span.end > span.start)
        if len(self.spans) > _MOST:
            half = len(self.spans) // 2
            joined = [*_joined(self.spans[:half]), *self.spans[half:]]
            has_only_gaps = len(joined) == len(self.spans)
            self.spans = list(_joined(joined)) if has_only_gaps else joined

    @property
    def end(self) -> Micros | None:
        """The write time up to which rows have been counted; None before the first count."""
        return self.spans[-1].end if self.spans else None

    @property
    def rate(self) -> float | None:
        """Rows per second in the last minute that was counted; None if nothing was counted."""
        recent = [span for span in self.spans if span.end > self.spans[-1].end - _RECENT]
        if not recent:
            return None
        length = sum(span.end - span.start for span in recent)
        return sum(span.rows for span in recent) * SECOND / length

    @property
    def late(self) -> int:
        """The number of late rows found."""
        return sum(span.late for span in self.spans)


@define
class History:
    """The states of readers over time, by table and name, and the row counts of tables."""

    readers: defaultdict[tuple[TableName, str], list[Point]] = field(
        factory=lambda: defaultdict(list)
    )
    counts: dict[TableName, Counts] = field(factory=dict)

    def add(self, status: Status) -> None:
        """Record the current state of each of a table's readers."""
        for reader in status.readers:
            points = self.readers[status.table, str(reader)]
            points.append(Point(reader.now, reader.lag, reader.left))
            if len(points) > _MOST:
                half = len(points) // 2
                points[:half] = points[:half:2]

    def of_table(self, table: TableName) -> dict[str, list[Point]]:
        """Return the points of a table's readers, by name."""
        return {name: points for (of, name), points in self.readers.items() if of == table}

    def to_json(self) -> str:
        """Return the history as text for `of_json`."""
        readers = [
            {"table": str(table), "reader": name, "points": [astuple(point) for point in points]}
            for (table, name), points in self.readers.items()
        ]
        rows = [
            {
                "table": str(table),
                "late_scan_at": counts.late_scan_at,
                "spans": [astuple(span) for span in counts.spans],
            }
            for table, counts in self.counts.items()
        ]
        found = {"version": _VERSION, "readers": readers, "rows": rows}
        return json.dumps(found, separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> History:
        """Parse the output of `to_json`; raise ValueError if it is not from this version."""
        try:
            found, history = json.loads(text), cls()
            if found["version"] != _VERSION:
                raise ValueError(f"the version is {found['version']!r}: expected {_VERSION}")
            for kept in found["readers"]:
                points = [Point(*numbers) for numbers in kept["points"]]
                history.readers[TableName.parse(kept["table"]), kept["reader"]] = points
            for kept in found["rows"]:
                spans = [Counted(*numbers) for numbers in kept["spans"]]
                table = TableName.parse(kept["table"])
                history.counts[table] = Counts(spans, kept["late_scan_at"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a history: {error!r}") from error
        return history


def _joined(spans: Iterable[Counted]) -> Iterator[Counted]:
    """Join adjacent spans in pairs; spans with a gap between them stay apart."""
    waiting: Counted | None = None
    for span in spans:
        if waiting is None:
            waiting = span
        elif waiting.end == span.start:
            yield waiting.joined(span)
            waiting = None
        else:
            yield waiting
            waiting = span
    if waiting is not None:
        yield waiting


def trend(points: Sequence[Point]) -> str:
    """Describe in words how the lag changed in the last minute; empty if unknown."""
    recent = [point for point in points if point.at >= points[-1].at - _RECENT]
    known = [(point.at, point.lag) for point in recent if point.lag is not None]
    if not known or known[-1][0] - known[0][0] < _SURE:
        return ""
    (began, first), (now, last) = known[0], known[-1]
    slope = (last - first) / (now - began)
    if slope > _STEADY:
        is_still = last - first >= now - began
        return "not advancing" if is_still else "falling behind"
    if slope < -_STEADY:
        return f"catching up, {duration_text(round(last / -slope))} left"
    return "steady"


def connected(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Split the points at gaps, where no sample was taken or the lag was unknown."""
    usual = median([b.at - a.at for a, b in pairwise(points)] or [0])
    part: list[Point] = []
    for point in points:
        if part and (point.lag is None or point.at - part[-1].at > _GAP * usual):
            yield part
            part = []
        if point.lag is not None:
            part.append(point)
    if part:
        yield part
