"""Passes numbers and masks between numpy and Arrow without importing pandas.

If pandas is installed, Arrow imports it on the first conversion of a numpy array, a list or a
Python value, and on the first call of `to_numpy` or `fill_null`. The import can take a second, so
the first change of a process would arrive late. The functions below pass Arrow's buffers instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_INT64 = pa.int64()
Numbers = np.ndarray[Any, Any]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

_KINDS = {
    pa.from_numpy_dtype(kind): kind
    for kind in map(np.dtype, ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))
}
"""numpy's type for each of Arrow's; `to_pandas_dtype` of pyarrow 20 imports pandas."""


def to_arrow(values: Numbers, *, nulls: Mask | None = None) -> pa.Array:
    """Return numbers or booleans as an Arrow array, with null where `nulls` is true.

    The array shares the memory of contiguous numbers, which must not be changed afterward.
    """
    kind = pa.from_numpy_dtype(values.dtype)
    cells = _bits(values) if values.dtype == bool else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(
        kind, len(values), [None if nulls is None else _bits(~nulls), cells]
    )


def to_numpy(column: pa.Array) -> Numbers:
    """Return the numbers of a column without nulls, as a read-only view of Arrow's memory."""
    if column.null_count:
        raise ValueError(f"expected numbers, found {column.null_count} nulls among {column.type}")
    return cells(column)


def cells(column: pa.Array) -> Numbers:
    """Return the numbers of a column as `to_numpy` does; null cells have arbitrary numbers."""
    kind = _KINDS[column.type]
    if not len(column):
        return np.empty(0, kind)
    found: Numbers = np.frombuffer(
        column.buffers()[1], kind, len(column), column.offset * kind.itemsize
    )
    return found


def filled(column: pa.Array, number: int) -> Numbers:
    """Return the numbers of a column, with `number` where they are null."""
    if not column.null_count:
        return cells(column)
    return np.where(valid(column), cells(column), number)


def booleans(column: pa.Array) -> Mask:
    """Return a Boolean column as a mask, with null as False."""
    if not len(column):
        return np.zeros(0, bool)
    found = _mask(column.buffers()[1], column)
    return found & valid(column) if column.null_count else found


def valid(column: pa.Array) -> Mask:
    """Return a mask of the cells that are not null."""
    if not column.null_count:
        return np.ones(len(column), bool)
    bits = column.buffers()[0]
    return np.zeros(len(column), bool) if bits is None else _mask(bits, column)


def indices(rows: Sequence[int]) -> pa.Array:
    """Return row indices as an Arrow array."""
    return to_arrow(np.array(rows, np.int64))


def scalar(number: int, kind: pa.DataType = _INT64) -> pa.Scalar:
    """Return a number as an Arrow scalar."""
    return to_arrow(np.array([number], _KINDS[kind]))[0]


def _bits(values: Mask) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _mask(bits: pa.Buffer, column: pa.Array) -> Mask:
    """Convert one of the column's bitmaps to a mask."""
    first, end = column.offset, column.offset + len(column)
    taken = np.frombuffer(bits, np.uint8, (end + 7) // 8 - first // 8, first // 8)
    found: Mask = np.unpackbits(taken, bitorder="little").view(bool)
    return found[first % 8 : first % 8 + len(column)]


_EMPTY = [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")]
NO_TEXT = pa.Array.from_buffers(pa.string(), 1, _EMPTY)[0]
"""The empty text, as an Arrow scalar."""


def has_value(batch: pa.RecordBatch, name: str) -> bool:
    """Return True if the batch has a column of this name that is not null in all rows."""
    return name in batch.schema.names and batch.column(name).null_count < batch.num_rows
