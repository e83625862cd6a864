"""Computes write times and sortable versions from ``cdc$time``, a column at a time.

The kernel returns time UUIDs as text in canonical form, 36 characters each. These texts do not sort
in the server's order, because a text begins with the low digits of the time, and the server
compares the last eight bytes as signed bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cdc_reader.cql.timeuuid import TIME_DIGITS
from cdc_reader.decoding import micros_of

TIMESTAMP = pa.timestamp("us", tz="UTC")
_LENGTH = 36
_TIME = [position for digits in TIME_DIGITS for position in range(*digits)]
_LOW = [*range(19, 23), *range(24, 36)]
"""Positions of the digits of the last eight bytes."""
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)

_Array = np.ndarray[Any, np.dtype[Any]]


def commit_timestamps(times: pa.Array) -> pa.Array:
    """Return the write times, to the microsecond, of a column of time UUIDs without nulls."""
    return micros_of(times).view(TIMESTAMP)


def commit_versions(times: pa.Array) -> pa.Array:
    """Return strings of equal length that sort in the order in which the server sorts the UUIDs.

    Each string consists of the fifteen digits of the time, a dash, and the last eight bytes with
    their sign bits flipped.
    """
    found = _characters(times)
    low = found[:, _LOW].copy()
    low[:, ::2] = _FLIPPED[low[:, ::2]]
    dash = np.full((len(found), 1), ord("-"), np.uint8)
    return _texts(np.hstack([found[:, _TIME], dash, low]))


def _characters(times: pa.Array) -> _Array:
    """Return the characters of the column, one row per UUID."""
    if not len(times):
        return np.empty((0, _LENGTH), np.uint8)
    _, offsets, data = times.buffers()
    start = np.frombuffer(offsets, np.int32)[times.offset]
    count = len(times) * _LENGTH
    return np.frombuffer(data, np.uint8, count, start).reshape(-1, _LENGTH)


def _texts(characters: _Array) -> pa.Array:
    rows, length = characters.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * length
    data = np.ascontiguousarray(characters)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data))


def _by_digit(values: _Array) -> _Array:
    table = np.zeros(256, values.dtype)
    table[_DIGITS] = values
    return table


_FLIPPED = _by_digit(np.roll(_DIGITS, 8))
"""Hexadecimal digits with their highest bit flipped."""
