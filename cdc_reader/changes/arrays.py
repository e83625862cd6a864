"""Functions that select, group and mark rows of Arrow columns, with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader._arrow import Mask, booleans, cells, filled, to_arrow, valid
from cdc_reader.cql.schema import FAULTS
from cdc_reader.decoding.faults import faults_of, is_tolerant

Indices = np.ndarray[Any, np.dtype[np.int64]]
"""Row numbers; NONE stands for a missing row."""

NONE = -1


def pick(column: pa.Array, rows: Indices) -> pa.Array:
    """Return the cells of the given rows, with null where an index is NONE."""
    return column.take(to_arrow(rows, nulls=rows == NONE))


def at_rows(mask: Mask, rows: Indices) -> Mask:
    """Return the mask's values at the given rows, with False where an index is NONE."""
    found: Mask = np.append(mask, False)[rows]  # NONE (-1) is the last index
    return found


def last_of_each(groups: Indices, wanted: Mask, count: int) -> Indices:
    """Return the last wanted row of each of `count` groups, or NONE.

    `groups` contains the group number of each row.
    """
    found = np.full(count, NONE, np.int64)
    rows = np.flatnonzero(wanted)
    found[groups[rows]] = rows  # if a group has several, the last assignment wins
    return found


def first_of_each(groups: Indices, wanted: Mask, count: int) -> Indices:
    """Return the first wanted row of each of `count` groups, or NONE.

    `groups` contains the group number of each row.
    """
    found = np.full(count, NONE, np.int64)
    rows = np.flatnonzero(wanted)[::-1]
    found[groups[rows]] = rows
    return found


def any_of_each(groups: Indices, wanted: Mask, count: int) -> Mask:
    """Return, for each of `count` groups, whether any of its rows is wanted."""
    found: Mask = last_of_each(groups, wanted, count) != NONE
    return found


def comparable(column: pa.Array) -> pa.Array:
    """Convert key cells so that Arrow's equality matches the server's.

    The server treats 0.0 and -0.0 as different, and NaN as equal to NaN. Nested cells become text,
    because Arrow cannot compare them.
    """
    if pa.types.is_floating(column.type):
        numbers = cells(column)
        bits = np.where(np.isnan(numbers), np.nan, numbers).astype(numbers.dtype)
        integers = np.int32 if column.type == pa.float32() else np.int64
        return to_arrow(bits.view(integers), nulls=~valid(column))
    if pa.types.is_nested(column.type):
        values = column.cast(_without_calendar(column.type)).to_pylist()
        return pa.array([None if cell is None else repr(cell) for cell in values], pa.string())
    return column


def _without_calendar(kind: pa.DataType) -> pa.DataType:
    """Return the type with numbers for points in time, some of which Python's types cannot hold."""
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([each.with_type(_without_calendar(each.type)) for each in fields])
    if pa.types.is_map(kind):
        key, item = (
            it.with_type(_without_calendar(it.type)) for it in (kind.key_field, kind.item_field)
        )
        return pa.map_(key, item)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_calendar(kind.value_type)))
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


def key_cells(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a key column in comparable form, or as numbers if it contains faulty cells.

    A faulty cell equals only faulty cells with the same original value.
    """
    found = comparable(batch.column(name))
    if not (raw := _raw(batch, name)):
        return found
    numbers, known = codes(found), dict[str, int]()
    for row, text in raw.items():
        numbers[row] = len(found) + known.setdefault(text, len(known))
    return to_arrow(numbers, nulls=numbers == NONE)


def faulty(batch: pa.RecordBatch, name: str | None = None) -> Mask:
    """Return a mask of the rows that have a faulty cell.

    Only column `name` is checked, or every column if `name` is None.
    """
    found = np.zeros(batch.num_rows, bool)
    if name is not None:
        found[list(_raw(batch, name))] = True
    elif is_tolerant(batch):
        found = valid(batch.column(FAULTS))
    return found


def is_given(batch: pa.RecordBatch, name: str) -> Mask:
    """Return a mask of the rows where the column has a value, even a faulty one."""
    return valid(batch.column(name)) | faulty(batch, name)


def _raw(batch: pa.RecordBatch, name: str) -> dict[int, str]:
    """Return, by row number, the text of the column's values that could not be converted."""
    return {
        row: fault.raw
        for row, faults in faults_of(batch).items()
        for fault in faults
        if fault.column == name
    }


def repeats(column: pa.Array) -> Mask:
    """Return, for each cell except the first, whether it equals the cell before it.

    Null equals null.
    """
    equal = booleans(pc.equal(column[1:], column[:-1]))
    if column.null_count:
        null = ~valid(column)
        equal |= null[1:] & null[:-1]
    return equal


def codes(column: pa.Array) -> Indices:
    """Return a number for each cell, the same for equal cells; NONE for null.

    The order of the numbers has no meaning.
    """
    return filled(column.dictionary_encode().indices, NONE).astype(np.int64)


def combined(groups: Indices, more: Indices) -> Indices:
    """Combine two groupings of the same rows into one.

    Rows get the same number if they are in the same group of both groupings. The numbers begin at 0
    and have no gaps.
    """
    pairs = groups * (more.max(initial=NONE) + 2) + more + 1
    found: Indices = np.unique(pairs, return_inverse=True)[1]
    return found


def names_of(marks: Mask, names: list[str], shown: Mask) -> pa.Array:
    """Return, for each row, the list of names that `marks` selects; null if `shown` is False."""
    rows, columns = np.nonzero(marks & shown[:, np.newaxis])
    lengths = np.bincount(rows, minlength=len(marks))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = pa.array(names, pa.string()).take(pa.array(columns))
    lists = pa.ListArray.from_arrays(pa.array(offsets), values, type=NAMES)
    return pc.if_else(pa.array(shown), lists, pa.scalar(None, NAMES))


NAMES = pa.list_(pa.field("element", pa.string()))
