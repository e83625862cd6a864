"""`Change`: what one write did to one row of the base table, made of the log's rows.

All log rows of one stream and `cdc$time` are a *record*: what one write did to one partition. A
record has one change for each row of the base table that it touches (the static row counts as
one), one for each range that it deletes, and one if it deletes the partition.

Three things differ everywhere:

- *left alone*: the column has no delta;
- *set to null*: its delta is `Deleted`, and an image has it as None;
- *not shown*: an image lacks it, or there is no image at all; where the log tells keys only,
  `Change.deltas_shown` is False.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from attrs import frozen

from cdc_reader import timeuuid
from cdc_reader.delta import CollectionDelta, Delta, Set, merge
from cdc_reader.ids import StreamId, TableName
from cdc_reader.log_page import (
    BATCH_SEQ_NO,
    IMAGES,
    OPERATION,
    RANGE_BOUNDS,
    RANGE_ENDS,
    RANGE_STARTS,
    STREAM_ID,
    TIME,
    TTL,
    LogPage,
    layout_of,
)
from cdc_reader.operation import Operation
from cdc_reader.schema import LogSchema
from cdc_reader.value import FrozenDict

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ChangeOperation(StrEnum):
    """What a change did; a code that this version does not know has a member of its own,
    ``unknown_<code>``.
    """

    INSERT = "insert"
    UPDATE = "update"
    ROW_DELETE = "row_delete"
    RANGE_DELETE = "range_delete"
    PARTITION_DELETE = "partition_delete"
    SERVER_ROW_DELETE = "server_row_delete"
    SERVER_PARTITION_DELETE = "server_partition_delete"
    IMAGE = "image"

    @property
    def is_known(self) -> bool:
        """Whether this version knows what the operation means."""
        return not self.startswith("unknown_")

    @property
    def is_delete(self) -> bool:
        """Whether a row, a range of rows or a partition is gone."""
        return self.endswith("_delete")

    @classmethod
    def _missing_(cls, value: object) -> ChangeOperation | None:
        if not isinstance(value, str) or not value.startswith("unknown_"):
            return None
        member = str.__new__(cls, value)
        member._name_ = value.upper()
        member._value_ = value
        return cls._value2member_map_.setdefault(value, member)  # type: ignore[return-value]


class _Meanings(dict[Operation, ChangeOperation]):
    """What the operation of a log row makes of its change."""

    def __missing__(self, operation: Operation) -> ChangeOperation:
        meaning = self[operation] = ChangeOperation(operation.name.lower())
        return meaning


_MEANINGS = _Meanings(dict.fromkeys(RANGE_BOUNDS, ChangeOperation.RANGE_DELETE))
_MEANINGS.update(dict.fromkeys(IMAGES, ChangeOperation.IMAGE))
_PREIMAGE, _POSTIMAGE = (Operation.PREIMAGE,), (Operation.POSTIMAGE,)
_INCLUSIVE = (Operation.RANGE_START_INCLUSIVE, Operation.RANGE_END_INCLUSIVE)


@frozen
class Part:
    """One delta row of the log.

    A write is logged in several if its cells have several TTLs, or if it both inserts a row and
    adds to its collections. `seq` is the row's `cdc$batch_seq_no`; `ttl` is in seconds, that of
    all live cells of the part and of its row marker, None if they live on.
    """

    operation: Operation
    seq: int
    ttl: int | None
    deltas: Mapping[str, Delta]

    @property
    def is_live(self) -> bool:
        """Whether it wrote anything that a TTL can be of."""
        return self.operation is Operation.INSERT or any(map(_is_live, self.deltas.values()))


@frozen
class Bound:
    """One end of a range of rows: the clustering columns it names, the first of them at least.

    A bound that names none is open. Of a bound that names some only, all rows that begin with
    them are inside if it is `inclusive`.
    """

    prefix: Mapping[str, Any]
    inclusive: bool

    def __str__(self) -> str:
        kind = "inclusive" if self.inclusive else "exclusive"
        return f"{dict(self.prefix)} {kind}" if self.prefix else "open"


@frozen
class RowRange:
    """The rows that a range delete deleted, from `start` to `end` in clustering order.

    An end that the log did not show, its record being incomplete, is None.
    """

    start: Bound | None
    end: Bound | None

    def __str__(self) -> str:
        return f"from {self.start or '?'} to {self.end or '?'}"


@frozen(eq=False, repr=False)
class Change:
    """What one write did to one row, range or partition of the base table.

    A value: equal to any that say the same, hashed, pickled. What it shows is made of the page
    it came from when it is first asked for. `is_last` says that no other change of its record
    follows; `complete`, that the whole record was seen, up to `cdc$end_of_batch`.
    """

    _page: LogPage
    _rows: tuple[int, ...]

    @property
    def table(self) -> TableName:
        """The base table."""
        return self.schema.base.name

    @property
    def schema(self) -> LogSchema:
        """The table and its log as they were when it was read."""
        return self._page.layout.schema

    @property
    def is_last(self) -> bool:
        """Whether no other change of its record follows."""
        return self._page.are_last[self._rows[0]]

    @property
    def complete(self) -> bool:
        """Whether the whole record was seen, up to `cdc$end_of_batch`."""
        return self._page.are_complete[self._rows[0]]

    @property
    def stream(self) -> StreamId:
        """The stream of the log that it came from."""
        return StreamId(self._page[STREAM_ID][self._rows[0]])

    @property
    def time(self) -> uuid.UUID:
        """`cdc$time`, which all changes of the record share."""
        return uuid.UUID(self._page[TIME][self._rows[0]])

    @property
    def timestamp(self) -> int:
        """The write timestamp, in µs since 1970.

        A deletion of a whole collection column is logged 1 µs after the timestamp it has.
        """
        return timeuuid.micros(self.time.bytes)

    @property
    def late(self) -> bool:
        """Whether it came to light behind later changes of its stream: so out of order."""
        return self._page.late

    @property
    def written_at(self) -> datetime:
        """The write timestamp as a point in time, UTC."""
        return _EPOCH + timedelta(microseconds=self.timestamp)

    @property
    def seqs(self) -> tuple[int, ...]:
        """`cdc$batch_seq_no` of its log rows, ascending; other changes may have rows between."""
        numbers = self._page[BATCH_SEQ_NO]
        return tuple([numbers[row] for row in self._rows])

    @property
    def operation(self) -> ChangeOperation:
        """What it did, all in all: a delete if any part is one, else an insert if any part is."""
        operations, rows = self._page.operations, self._rows
        if len(rows) == 1:
            return _MEANINGS[operations[rows[0]]]
        told = [it for row in rows if (it := operations[row]) not in IMAGES]
        return _MEANINGS[min(told, key=_rank, default=operations[rows[0]])]

    @property
    def key(self) -> FrozenDict[str, Any]:
        """The partition key, and the clustering columns of the row if it is of one row."""
        return self._page.keys_of_rows[self._rows[0]]

    @property
    def partition_key(self) -> FrozenDict[str, Any]:
        """The partition key by column; changes of one have an order among themselves."""
        return self._page.partition_keys[self._rows[0]]

    @property
    def is_static(self) -> bool:
        """Whether it is of a partition's static row."""
        return self._page.are_static[self._rows[0]] and not self.operation.is_delete

    @property
    def parts(self) -> tuple[Part, ...]:
        """What it did, row by row of the log, in order: nothing merged."""
        operations = self._page.operations
        return tuple(self._part(row) for row in self._rows if operations[row] not in IMAGES)

    @property
    def deltas(self) -> Mapping[str, Delta]:
        """What was done to the columns, by name, all parts merged; empty for deletes."""
        deltas, rows = self._page.deltas, self._rows
        if len(rows) == 1:
            return deltas[rows[0]]
        return _merged([deltas[row] for row in rows if deltas[row]])

    @property
    def deltas_shown(self) -> bool:
        """Whether `deltas` tells what was written: False of a log that tells keys only."""
        if self.deltas or not self.schema.base.cdc.delta_keys_only:
            return True
        return self.operation not in (ChangeOperation.INSERT, ChangeOperation.UPDATE)

    @property
    def ttl(self) -> int | None:
        """The TTL, in seconds, of all that it wrote; None if that lives on, or has several TTLs."""
        found = {part.ttl for part in self.parts if part.is_live}
        return found.pop() if len(found) == 1 else None

    @property
    def range(self) -> RowRange | None:
        """The rows a range delete deleted; None if it is not one."""
        if not self._is_range:
            return None
        return RowRange(self._bound(RANGE_STARTS), self._bound(RANGE_ENDS))

    @property
    def before(self) -> Mapping[str, Any] | None:
        """The row's columns, keys aside, as they were; None if the log does not show them.

        With ``preimage: true`` these are the columns touched. Collections are as `value` has
        them, empty ones None; a list is a dict of its elements by timeuuid, in their order.
        """
        if not self._page.has_preimages:
            return None
        row = self._row(_PREIMAGE)
        return None if row is None else self._page.befores[row]

    @property
    def after(self) -> Mapping[str, Any] | None:
        """All columns of the row, keys aside, as they became; None if the log does not show them.

        None too if the row was deleted. See `before` for the values.
        """
        if not self._page.has_postimages:
            return None
        row = self._row(_POSTIMAGE)
        return None if row is None else self._page.afters[row]

    def to_dict(self) -> dict[str, Any]:
        """All of it in terms that JSON has; see `cdc_reader.change_json`."""
        from cdc_reader.change_json import change_to_dict

        return change_to_dict(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Change):
            return NotImplemented
        return self._facts == other._facts

    def __hash__(self) -> int:
        return hash((self.stream, self.time, self.seqs))

    def __repr__(self) -> str:
        moment = self.written_at.isoformat().replace("+00:00", "Z")
        words = [str(self.operation), str(self.table), repr(dict(self.key))]
        words += [str(bounds)] if (bounds := self.range) is not None else []
        words += [f"{name} {delta}" for name, delta in self.deltas.items()]
        words += ["late"] if self.late else []
        return f"<{' '.join(words)} at {moment}>"

    def __reduce__(self) -> tuple[Any, ...]:
        page = self._page
        facts = self.schema, page.rows(self._rows), self.is_last, self.complete, self.late
        return change_of_rows, facts

    @property
    def _facts(self) -> tuple[object, ...]:
        return (
            (self.table, self.stream, self.time, self.seqs, self.is_last, self.complete),
            (self.key, self.parts, self.range, self.before, self.after),
        )

    @property
    def _is_range(self) -> bool:
        return self._page.operations[self._rows[0]] in RANGE_BOUNDS

    def _part(self, row: int) -> Part:
        page = self._page
        return Part(page.operations[row], page[BATCH_SEQ_NO][row], page[TTL][row], page.deltas[row])

    def _row(self, operations: Container[Operation]) -> int | None:
        found = self._page.operations
        for row in self._rows:
            if found[row] in operations:
                return row
        return None

    def _bound(self, kinds: Container[Operation]) -> Bound | None:
        if (row := self._row(kinds)) is None:
            return None
        cells = {name: self._page[name][row] for name in self._page.layout.clustering}
        prefix = {name: value for name, value in cells.items() if value is not None}
        return Bound(FrozenDict(prefix), self._page.operations[row] in _INCLUSIVE)


def change_of_rows(
    schema: LogSchema,
    columns: dict[str, list[Any]],
    is_last: bool = True,
    complete: bool = True,
    late: bool = False,
) -> Change:
    """A change of log rows that are one, given as Python values by log column.

    Columns left out are null. This is how a test makes a change, and how one is unpickled.
    """
    page = LogPage.of_values(layout_of(schema), columns, late=late)
    page.are_last[0], page.are_complete[0] = is_last, complete
    return Change(page, tuple(range(len(columns[OPERATION]))))


def _rank(operation: Operation) -> int:
    """What decides of several operations comes first."""
    rank = _RANKS.get(operation)
    return (0 if operation.is_known else 1) if rank is None else rank


_RANKS = {Operation.INSERT: 2, Operation.UPDATE: 3}


def _merged(parts: Sequence[Mapping[str, Delta]]) -> Mapping[str, Delta]:
    if len(parts) == 1:
        return parts[0]
    merged: dict[str, Delta] = {}
    for part in parts:
        for name, delta in part.items():
            merged[name] = merge(merged.get(name), delta)
    return FrozenDict(merged)


def _is_live(delta: Delta) -> bool:
    return isinstance(delta, Set) or (isinstance(delta, CollectionDelta) and bool(delta.added))
