"""Helpers that pick, group and mark rows of Arrow columns with numpy."""

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
    """Return the column as a mask; null is false."""
    filled: Mask = column.fill_null(False).to_numpy(zero_copy_only=False)
    return filled


def valid(column: pa.Array) -> Mask:
    """Return a mask of the rows that are not null."""
    return booleans(column.is_valid())


def pick(column: pa.Array, rows: Indices) -> pa.Array:
    """Return the cells of these rows; null where the row is NONE."""
    return column.take(pa.array(rows, mask=rows == NONE))


def last_of_each(groups: Indices, wanted: Mask, count: int) -> Indices:
    """Return the last wanted row of each of `count` groups; NONE if it has none.

    `groups` holds each row's group number, NONE for rows without a group.
    """
    found = np.full(count, NONE, np.int64)
    rows = np.flatnonzero(wanted & (groups != NONE))
    found[groups[rows]] = rows  # with several per group, the last wins
    return found


def any_of_each(groups: Indices, wanted: Mask, count: int) -> Mask:
    """Return for each of `count` groups whether any of its rows is wanted."""
    found: Mask = last_of_each(groups, wanted, count) != NONE
    return found


def codes(column: pa.Array) -> Indices:
    """Return a number for each distinct cell, in no particular order; NONE for null."""
    if pa.types.is_nested(column.type):  # Arrow cannot compare these; rare, only in keys
        column = pa.array([None if cell is None else repr(cell) for cell in column.to_pylist()])
    numbers: Indices = (
        column.dictionary_encode().indices.fill_null(NONE).to_numpy().astype(np.int64)
    )
    return numbers


def combined(groups: Indices, more: Indices) -> Indices:
    """Return dense group numbers from 0, equal where both inputs are equal."""
    pairs = groups * (more.max(initial=NONE) + 2) + more + 1
    found: Indices = np.unique(pairs, return_inverse=True)[1]
    return found


def names_of(marks: Mask, names: list[str], shown: Mask) -> pa.Array:
    """Return for each row the names whose mark is set; null where not `shown`."""
    rows, columns = np.nonzero(marks & shown[:, np.newaxis])
    lengths = np.bincount(rows, minlength=len(marks))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = pa.array(names, pa.string()).take(pa.array(columns))
    lists = pa.ListArray.from_arrays(pa.array(offsets), values, type=NAMES)
    return pc.if_else(pa.array(shown), lists, pa.scalar(None, NAMES))


NAMES = pa.list_(pa.field("element", pa.string()))
