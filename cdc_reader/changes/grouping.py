"""Groups batches of log rows into changes; a record's rows may span pages."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, pairwise, repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader import decoding as kernel
from cdc_reader.changes.change import Change
from cdc_reader.changes.columns import (
    IMAGES,
    RANGE_ENDS,
    RANGE_STARTS,
    LogPage,
    PageSlice,
    layout_of,
)
from cdc_reader.cql.schema import END_OF_BATCH, OPERATION, STREAM_ID, TIME, LogSchema, Operation
from cdc_reader.cql.types import CqlType, Native

_PARTITION_DELETES = frozenset([Operation.PARTITION_DELETE, Operation.SERVER_PARTITION_DELETE])
_ROW_OPERATIONS = IMAGES | {
    Operation.UPDATE,
    Operation.INSERT,
    Operation.ROW_DELETE,
    Operation.SERVER_ROW_DELETE,
}
_RECORDS = 128
"""Records converted at a time; few enough to be freed before a garbage collection scans them."""


class Grouping:
    """Turns the batches of one read, given in order, into changes.

    A record that a page boundary splits is held until its other rows arrive. Use one grouping for
    each task's batches, and call `finish` at the end. Extra columns of a batch are ignored. All
    changes have the given `late`.
    """

    def __init__(self, schema: LogSchema, *, late: bool = False) -> None:
        self._late = late
        self._layout = layout_of(schema)
        self._ends_marked = END_OF_BATCH in self._layout.converters
        types = [c.type for c in schema.base.columns if c.name in self._layout.clustering]
        self._identity: Callable[[Any], Any] = tuple if all(map(_is_told_apart, types)) else repr
        # Without clustering columns, deleting a partition deletes its only row.
        whole = frozenset() if self._layout.clustering else _PARTITION_DELETES
        self._row_operations = _ROW_OPERATIONS | whole
        self._held: list[pa.RecordBatch] = []

    def feed(self, batch: pa.RecordBatch) -> list[Change]:
        """Return the changes of all records that this batch completes, in order."""
        return list(self.each(batch, records=max(1, batch.num_rows)))  # all are kept anyway

    def each(self, batch: pa.RecordBatch, *, records: int = _RECORDS) -> Iterator[Change]:
        """Like `feed`, but convert lazily, `records` records at a time, to keep memory use low.

        The call itself takes in the batch, before the first `next`.
        """
        if not batch.num_rows:
            return iter(())
        starts = _starts(batch)
        if self._held and self._is_middle(batch, starts):
            self._held.append(batch)
            return iter(())
        if self._held:
            batch = pa.concat_batches([*self._held, batch])
            starts = _starts(batch)
        self._held = []
        if not self._ends(batch):
            self._held = [batch.slice(starts[-1])]
            batch = batch.slice(0, starts.pop())
        return self._changes(batch, starts, records)

    def finish(self) -> list[Change]:
        """Return the changes of the record held back; then the grouping can be used again.

        They are not `complete`, because the read ended before their record did. A log from before
        ScyllaDB 4.3 does not mark the end of a record; its changes count as complete.
        """
        if not self._held:
            return []
        batch, self._held = pa.concat_batches(self._held), []
        return list(self._changes(batch, [0], 1))

    def _is_middle(self, batch: pa.RecordBatch, starts: list[int]) -> bool:
        """Whether the batch has only further rows of the record held, without its end."""
        goes_on = len(starts) == 1 and _record(batch, 0) == _record(self._held[0], 0)
        return goes_on and not self._ends(batch)

    def _ends(self, batch: pa.RecordBatch) -> bool:
        """Whether the batch's last row is marked as the end of its record."""
        return self._ends_marked and batch[END_OF_BATCH][-1].as_py() is True

    def _changes(self, batch: pa.RecordBatch, starts: list[int], records: int) -> Iterator[Change]:
        page = LogPage(self._layout, batch, late=self._late)
        bounds, complete = [*starts, batch.num_rows], self._complete(page)
        for at in range(0, len(starts), records):
            places = bounds[at : at + records + 1]
            start, end = places[0], places[-1]
            stretch, within = PageSlice(page, start, end), [place - start for place in places]
            yield from self._of_stretch(stretch, within, complete[start:end])

    def _of_stretch(self, page: LogPage, bounds: list[int], complete: list[bool]) -> list[Change]:
        if len(bounds) == page.count + 1:
            page.are_complete = complete
            return _made(page, list(zip(range(page.count))))
        subjects = self._subjects(page)
        records = (
            self._of_record(page, subjects[start:end], start, complete[end - 1])
            for start, end in pairwise(bounds)
        )
        return _made(page, list(chain.from_iterable(records)))

    def _complete(self, page: LogPage) -> list[bool]:
        """Return for each row whether its record is complete if this row is the last of it."""
        if not self._ends_marked:
            return [True] * page.count
        return [mark is True for mark in page[END_OF_BATCH]]

    def _subjects(self, page: LogPage) -> list[object]:
        """Return for each log row the identity of its base row, by clustering columns.

        None for log rows of ranges or whole partitions; `_subject` tells these apart.
        """
        columns = [page[name] for name in self._layout.clustering]
        keys: Iterable[tuple[Any, ...]] = zip(*columns, strict=True)
        if not columns:
            keys = repeat((), page.count)
        return [
            self._identity(key) if operation in self._row_operations else None
            for key, operation in zip(keys, page[OPERATION], strict=True)
        ]

    def _of_record(
        self, page: LogPage, subjects: list[object], start: int, complete: bool
    ) -> list[tuple[int, ...]]:
        """Return the rows of each change of a record; set their `are_last` and `are_complete`."""
        groups = self._groups(page, subjects, start)
        for rows in groups:
            page.are_last[rows[0]] = rows is groups[-1]
            page.are_complete[rows[0]] = complete
        return groups

    def _groups(self, page: LogPage, subjects: list[object], start: int) -> list[tuple[int, ...]]:
        """Group the record's rows by what they change, in the order of their deltas."""
        first = subjects[0]
        if first is not None and subjects.count(first) == len(subjects):
            return [tuple(range(start, start + len(subjects)))]
        groups: dict[object, list[int]] = {}
        operations = page[OPERATION]
        for row, subject in enumerate(subjects, start):
            key = _subject(row, operations[row], groups) if subject is None else subject
            groups.setdefault(key, []).append(row)
        return sorted(map(tuple, groups.values()), key=lambda rows: _first_delta(rows, operations))


def _subject(row: int, operation: int, groups: Container[object]) -> object:
    """Return the group of a row that is not of one base row; a range's end joins its start."""
    if operation in RANGE_ENDS and ("range", row - 1) in groups:
        return "range", row - 1
    return ("range" if operation in RANGE_STARTS else "other"), row


def _made(page: LogPage, rows: list[tuple[int, ...]]) -> list[Change]:
    return kernel.instances(Change, len(rows), repeat(page), rows)


def _first_delta(rows: Sequence[int], operations: list[int]) -> int:
    deltas = (row for row in rows if operations[row] not in IMAGES)
    return next(deltas, rows[0])


def _starts(batch: pa.RecordBatch) -> list[int]:
    """Return where records start: at 0, and wherever stream or time differs from the row before."""
    differs = pc.or_(*(_differs(batch[name]) for name in (STREAM_ID, TIME)))
    places = pc.add(pc.indices_nonzero(differs), 1).to_pylist()
    return [0, *places]


def _differs(column: pa.Array) -> pa.Array:
    return pc.not_equal(column[1:], column[:-1])


def _record(batch: pa.RecordBatch, row: int) -> tuple[Any, Any]:
    return batch[STREAM_ID][row].as_py(), batch[TIME][row].as_py()


def _is_told_apart(cql_type: CqlType) -> bool:
    """Whether Python and the server agree on which values are equal.

    They differ for floats: to the server 0.0 and -0.0 are different, and NaN equals NaN.
    """
    return isinstance(cql_type, Native) and cql_type.name not in {"float", "double"}
