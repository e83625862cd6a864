"""Arrow columns to numpy and back, where rows are picked, grouped and counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Indices = np.ndarray[Any, np.dtype[np.int64]]
"""Row numbers; NONE where there is no row."""

NONE = -1


def booleans(column: pa.Array) -> Mask:
    """The column as a mask; null is false."""
    filled: Mask = column.fill_null(False).to_numpy(zero_copy_only=False)
    return filled


def valid(column: pa.Array) -> Mask:
    """Where the column is not null."""
    return booleans(column.is_valid())


def pick(column: pa.Array, rows: Indices) -> pa.Array:
    """The cells of these rows, null where the row is NONE."""
    return column.take(pa.array(rows, mask=rows == NONE))


def last_of_each(groups: Indices, wanted: Mask, count: int) -> Indices:
    """For each of `count` groups its last row that is wanted; NONE if there is none.

    `groups` holds the number of each row's group, NONE for rows that are in none.
    """
    found = np.full(count, NONE, np.int64)
    rows = np.flatnonzero(wanted & (groups != NONE))
    found[groups[rows]] = rows  # of several, the last one stays
    return found


def any_of_each(groups: Indices, wanted: Mask, count: int) -> Mask:
    """For each of `count` groups whether any of its rows is wanted."""
    found: Mask = last_of_each(groups, wanted, count) != NONE
    return found


def codes(column: pa.Array) -> Indices:
    """A number for each distinct cell, in no order; NONE for null."""
    if pa.types.is_nested(column.type):  # which Arrow cannot compare: rare, and only in keys
        column = pa.array([None if cell is None else repr(cell) for cell in column.to_pylist()])
    numbers: Indices = (
        column.dictionary_encode().indices.fill_null(NONE).to_numpy().astype(np.int64)
    )
    return numbers


def combined(groups: Indices, more: Indices) -> Indices:
    """Group numbers, dense from 0, that are equal where both numbers are."""
    pairs = groups * (more.max(initial=NONE) + 2) + more + 1
    found: Indices = np.unique(pairs, return_inverse=True)[1]
    return found


def names_of(marks: Mask, names: list[str], shown: Mask) -> pa.Array:
    """For each row the list of the names whose mark is set; null where it is not `shown`."""
    rows, columns = np.nonzero(marks & shown[:, np.newaxis])
    lengths = np.bincount(rows, minlength=len(marks))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = pa.array(names, pa.string()).take(pa.array(columns))
    lists = pa.ListArray.from_arrays(pa.array(offsets), values, type=NAMES)
    return pc.if_else(pa.array(shown), lists, pa.scalar(None, NAMES))


NAMES = pa.list_(pa.field("element", pa.string()))
