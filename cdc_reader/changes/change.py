"""`Change`: what one write did to one row of the base table.

All log rows with the same stream and `cdc$time` form a *record*: what one write did to one
partition. A record has one change for each base row that it touches (the static row counts as
one), one for each range that it deletes, and one if it deletes the partition.

A column can be in one of these states:

- *left unchanged*: it has no delta;
- *set to null*: its delta is `Deleted`, and its value in an image is None;
- *not shown*: it is missing from an image, or there is no image. If the log has keys only,
  `Change.deltas_shown` is False.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Mapping
from datetime import datetime
from typing import Any, Final, final

from attrs import frozen

from cdc_reader._html import html_table
from cdc_reader._time import Micros, as_datetime
from cdc_reader.changes.columns import LogPage, layout_of
from cdc_reader.changes.delta import Delta
from cdc_reader.changes.json import deltas_to_json, part_to_json, value_to_json
from cdc_reader.changes.operation import ChangeOperation
from cdc_reader.changes.page import ChangePage
from cdc_reader.changes.part import Part
from cdc_reader.changes.records import RANGE_ENDS, RANGE_STARTS, ChangeRows
from cdc_reader.cql.names import TableName
from cdc_reader.cql.order import KeyRange, is_same
from cdc_reader.cql.schema import (
    OPERATION,
    LogSchema,
    Operation,
)
from cdc_reader.cql.values import FrozenDict
from cdc_reader.decoding import Entry, entry
from cdc_reader.streams.stream import StreamId

_INCLUSIVE = (Operation.RANGE_START_INCLUSIVE, Operation.RANGE_END_INCLUSIVE)


@frozen
class Bound:
    """One end of a range of rows: a prefix of the clustering columns.

    An empty prefix means that this end is unbounded. If the bound is `inclusive`, all rows whose
    clustering key begins with the prefix are inside the range.
    """

    prefix: Mapping[str, Any]
    inclusive: bool

    def __str__(self) -> str:
        kind = "inclusive" if self.inclusive else "exclusive"
        return f"{dict(self.prefix)} {kind}" if self.prefix else "open"


@frozen
class RowRange:
    """The rows that a range delete removed, from `start` to `end` in clustering order.

    An end is None if the log does not show it because the record is incomplete.
    """

    start: Bound | None
    end: Bound | None

    def __str__(self) -> str:
        return f"from {self.start or '?'} to {self.end or '?'}"


@final
class Change(Entry):
    """What one write did to one row, range or partition of the base table.

    Changes with equal contents are equal; changes can be hashed and pickled. Each attribute is
    computed when it is read, from the page of rows. The change keeps this page in memory: about
    0.6 MB for 5,000 rows with five columns. `copy.copy` and pickling make a change that keeps only
    its own rows.
    """

    __slots__ = ("_after", "_before", "_deltas", "_key", "_operation", "_partition_key", "_parts")
    _page: ChangePage

    @property
    def table(self) -> TableName:
        """The base table."""
        return self.schema.base.name

    @property
    def schema(self) -> LogSchema:
        """The schema of the table and its log, as used to read the change."""
        return self._page.log.layout.schema

    is_last: Final[bool] = entry(
        "are_last", "Whether this is the last change of its record.", kept=False
    )

    complete: Final[bool] = entry(
        "are_complete",
        "Whether the whole record was read, up to `cdc$end_of_batch`.",
        kept=False,
    )

    stream: Final[StreamId] = entry(
        "streams",
        "The stream of the log that contains the change; 16 zero bytes for a snapshot.",
        kept=False,
    )

    time: Final[uuid.UUID] = entry(
        "times",
        "The `cdc$time` that all changes of the record, or of the snapshot, share.",
        kept=False,
    )

    timestamp: Final[Micros] = entry(
        "write_times",
        """The write timestamp, in µs since 1970.

        If a whole collection is deleted, the logged timestamp is 1 µs later than the actual one.
        The timestamp of a snapshot's row is the position from which the log is followed.
        """,
        kept=False,
    )

    @property
    def late(self) -> bool:
        """True if the change arrived late.

        It was delivered after later changes of its stream, belongs to a generation that was
        announced late, or is a stray: a row in a stream of the wrong generation.
        """
        return self._page.log.late

    @property
    def written_at(self) -> datetime:
        """The write timestamp as a datetime in UTC."""
        return as_datetime(self.timestamp)

    seqs: Final[tuple[int, ...]] = entry(
        "seqs",
        """The `cdc$batch_seq_no` of the change's log rows, in ascending order.

        The numbers have gaps if rows of other changes lie between these rows.
        """,
        kept=False,
    )

    operation: Final[ChangeOperation] = entry(
        "operations",
        """A delete if any part is a delete; else an insert if any part is one; else an update.

        For a row of a snapshot it is `SNAPSHOT`.
        """,
    )

    key: Final[FrozenDict[str, Any]] = entry(
        "keys", "The partition key and, for a change of one row, its clustering columns."
    )

    partition_key: Final[FrozenDict[str, Any]] = entry(
        "partition_keys", "The partition key by column. Changes of one partition are ordered."
    )

    is_static: Final[bool] = entry(
        "are_static", "Whether the change affects the static columns of a partition.", kept=False
    )

    parts: Final[tuple[Part, ...]] = entry(
        "parts",
        """The delta rows of the change, in order and not merged.

        A row of a snapshot has one part for each combination of TTL (the seconds left when the row
        was read) and write time among its cells. The first part is an insert of the cells that
        expire last.
        """,
    )

    deltas: Final[Mapping[str, Delta]] = entry(
        "deltas", "The deltas by column name, with all parts merged; empty for deletes."
    )

    @property
    def deltas_shown(self) -> bool:
        """Whether `deltas` shows what was written; False if the log has keys only."""
        if self.deltas or not self.schema.base.cdc.delta_keys_only:
            return True
        return self.operation not in (ChangeOperation.INSERT, ChangeOperation.UPDATE)

    ttl: Final[int | None] = entry(
        "ttls",
        "The TTL, in seconds, of everything the change wrote; None if it has no TTL or several.",
        kept=False,
    )

    @property
    def range(self) -> RowRange | None:
        """The range of a range delete; None for other changes."""
        if self.operation is not ChangeOperation.RANGE_DELETE:
            return None
        return RowRange(self._bound(RANGE_STARTS), self._bound(RANGE_ENDS))

    def covers(self, key: Mapping[str, Any]) -> bool:
        """Return True if this is a delete of the row with this key, of its range or partition.

        `key` is the row's key, like `Change.key`. Ranges are compared in the server's clustering
        order, which differs from Python's order for UUIDs, addresses and descending columns. A
        change that is not a delete covers no row.

        Raises ValueError if the record is incomplete and lacks an end of the range, and
        `UnsupportedTableError` for a range of vectors, which this version cannot compare.
        """
        if not self.operation.is_delete:
            return False
        if any(not is_same(key.get(name), value) for name, value in self.key.items()):
            return False
        return (rows := self.range) is None or self._in_range(rows, key)

    def _in_range(self, rows: RowRange, key: Mapping[str, Any]) -> bool:
        start, end, layout = rows.start, rows.end, self._page.log.layout
        if start is None or end is None:
            raise ValueError(f"range {rows}: expected both ends")
        if any(name not in key for name in layout.clustering):
            return False  # the static row is in no range
        bounds = KeyRange(start.prefix, end.prefix, start.inclusive, end.inclusive)
        return layout.order.contains(bounds)(key)

    before: Final[Mapping[str, Any] | None] = entry(
        "befores",
        """The row's columns before the change, without keys; None if the log has no preimage.

        With ``preimage: true`` it contains only the columns that the change touched. Empty
        collections are None; a non-frozen list is a dict from timeuuids to elements, in the order
        of the list.
        """,
    )

    after: Final[Mapping[str, Any] | None] = entry(
        "afters",
        """All columns of the row after the change, without keys; None if there is no postimage.

        It is also None if the row was deleted. Values are as in `before`. In a snapshot, it is the
        row as it was when it was read.
        """,
    )

    undecoded: Final[Mapping[str, str]] = entry(
        "undecoded",
        """The values that could not be decoded, by log column, as text such as ``0x0a1b``.

        Different values of one column, as in an image and in the delta, are separated by commas.
        They are null in the other attributes. A consumer passes such a change to `dead_letter`
        instead of the handler, so for handlers this is always empty.
        """,
        kept=False,
    )

    def to_dict(self) -> dict[str, Any]:
        """Convert the change to values that `json.dumps` accepts.

        Decimals, integers beyond 64 bits, UUIDs, addresses, points in time (ISO 8601) and durations
        become text. A blob becomes text such as ``0x0a1b``. A set becomes a sorted list. A map
        becomes an object if its keys are text or numbers, else a list of pairs.
        """
        found: dict[str, Any] = {
            "table": str(self.table),
            "operation": self.operation.value,
            "key": value_to_json(self.key),
            "deltas": deltas_to_json(self.deltas) if self.deltas_shown else None,
            "ttl": self.ttl,
            "before": value_to_json(self.before),
            "after": value_to_json(self.after),
            "timestamp": self.timestamp,
            "written_at": value_to_json(self.written_at),
            "stream": self.stream.hex(),
            "time": str(self.time),
            "seqs": list(self.seqs),
            "is_last": self.is_last,
            "complete": self.complete,
            "late": self.late,
        }
        if (bounds := self.range) is not None:
            found["range"] = {"start": _shown(bounds.start), "end": _shown(bounds.end)}
        if self.undecoded:
            found["undecoded"] = dict(self.undecoded)
        if len(parts := self.parts) > 1:
            found["parts"] = [part_to_json(part) for part in parts]
        return found

    def __init_subclass__(cls, **_: Any) -> None:
        raise TypeError("Change cannot be subclassed: readers, copies and pickles create Changes")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Change):
            return NotImplemented
        return self._facts == other._facts

    def __hash__(self) -> int:
        return hash((self.stream, self.time, self.seqs))

    def _repr_html_(self) -> str:
        """Return the key, the deltas and the images as an HTML table, for notebooks."""
        images = {"before": self.before, "after": self.after}
        shown = {name: image for name, image in images.items() if image is not None}
        columns = [column.name for column in self.schema.base.columns]
        rows: list[tuple[object, ...]] = [
            (name, repr(value), *("" for _ in shown)) for name, value in self.key.items()
        ]
        rows += [
            (name, self.deltas.get(name), *(_cell(image, name) for image in shown.values()))
            for name in columns
            if name in self.deltas or any(name in image for image in shown.values())
        ]
        moment = self.written_at.isoformat().replace("+00:00", "Z")
        words = [str(self.operation), str(self.table)]
        words += [str(bounds)] if (bounds := self.range) is not None else []
        words += [f"at {moment}", *(["late"] if self.late else [])]
        return html_table(" ".join(words), ("column", "change", *shown), rows)

    def __repr__(self) -> str:
        moment = self.written_at.isoformat().replace("+00:00", "Z")
        words = [str(self.operation), str(self.table), repr(dict(self.key))]
        words += [str(bounds)] if (bounds := self.range) is not None else []
        words += [f"{name} {delta}" for name, delta in self.deltas.items()]
        words += ["late"] if self.late else []
        return f"<{' '.join(words)} at {moment}>"

    def __reduce__(self) -> tuple[Any, ...]:
        columns = self._page.log.rows(self._rows)
        return change_of_rows, (self.schema, columns, self.is_last, self.complete, self.late)

    @property
    def _facts(self) -> tuple[object, ...]:
        return (
            (self.table, self.stream, self.time, self.seqs, self.is_last, self.complete),
            (self.key, self.parts, self.range, self.before, self.after),
        )

    @property
    def _rows(self) -> list[int]:
        return self._page.rows(self._number)

    def _bound(self, kinds: Container[Operation]) -> Bound | None:
        log = self._page.log
        row = next((row for row in self._rows if log.operations[row] in kinds), None)
        if row is None:
            return None
        cells = {name: log[name][row] for name in log.layout.clustering}
        prefix = {name: value for name, value in cells.items() if value is not None}
        return Bound(FrozenDict(prefix), log.operations[row] in _INCLUSIVE)


def _cell(image: Mapping[str, Any], name: str) -> str:
    """Return a column of an image as text, which is empty if the image lacks the column."""
    if name not in image:
        return ""
    return "null" if image[name] is None else repr(image[name])


def _shown(bound: Bound | None) -> dict[str, Any] | None:
    """Convert a bound to a JSON object."""
    if bound is None:
        return None
    return {"prefix": value_to_json(bound.prefix), "inclusive": bound.inclusive}


def reasons_of(change: Change) -> list[str]:
    """Return why values of the change could not be decoded; the texts contain no values."""
    faults = change._page.faults.get(change._number, [])  # noqa: SLF001 - of this module
    return [*dict.fromkeys(fault.reason for fault in faults)]


def change_of_rows(
    schema: LogSchema,
    columns: dict[str, list[Any]],
    is_last: bool = True,
    complete: bool = True,
    late: bool = False,
) -> Change:
    """Create a change from its log rows.

    `columns` contains the rows' Python values by log column; a missing column is null. This
    function is used in tests, and to unpickle a change.
    """
    log = LogPage.of_values(layout_of(schema), columns, late=late)
    rows = ChangeRows.of_one(columns[OPERATION], is_last=is_last, is_complete=complete)
    return Change(ChangePage(log, rows), 0)
