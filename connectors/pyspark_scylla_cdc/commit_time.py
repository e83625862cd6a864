"""When and in which order changes were made, from ``cdc$time``: a column at a time.

The kernel gives time UUIDs in canonical form, 36 characters each. A time UUID spells its time
out of order, low digits first, and the server compares its last eight bytes as signed ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cdc_reader.kernel import micros_of

TIMESTAMP = pa.timestamp("us", tz="UTC")
_LENGTH = 36
_TIME = [*range(15, 18), *range(9, 13), *range(8)]
"""Where the 15 digits of the time are, the most significant first; digit 14 is the version."""
_LOW = [*range(19, 23), *range(24, 36)]
"""Where the digits of the last eight bytes are."""
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)

_Array = np.ndarray[Any, np.dtype[Any]]


def commit_timestamps(times: pa.Array) -> pa.Array:
    """The write times of a column of time UUIDs without nulls, to the microsecond."""
    return micros_of(times).view(TIMESTAMP)


def commit_versions(times: pa.Array) -> pa.Array:
    """Texts of equal length that sort, as text, the way the server sorts these time UUIDs.

    Fifteen digits of time, a dash, and the last eight bytes with their sign bits flipped.
    """
    found = _characters(times)
    low = found[:, _LOW].copy()
    low[:, ::2] = _FLIPPED[low[:, ::2]]
    dash = np.full((len(found), 1), ord("-"), np.uint8)
    return _texts(np.hstack([found[:, _TIME], dash, low]))


def _characters(times: pa.Array) -> _Array:
    """The characters of the column, a row a UUID."""
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
"""Hexadecimal digits with their highest bit turned over."""
