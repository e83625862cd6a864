"""Hashes of key cells, computed from Arrow's buffers without a Python object for each cell.

Equal cells of a column have equal hashes in all batches. Hashes are 64-bit numbers and are computed
modulo 2^64. They must not be stored, because another version may compute other hashes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cdc_reader._arrow import booleans, cells, valid
from cdc_reader.changes.arrays import Indices, comparable

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
"""An odd number, so that different numbers remain different when they are multiplied by it."""
_WORD = 8
"""The number of bytes of a text or a blob that are hashed at a time."""


def hashes(column: pa.Array) -> Hashes:
    """Return a hash of each cell; null is 0.

    Cells are equal if the server treats them as equal: 0.0 and -0.0 differ, and NaN equals NaN.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        found = _of_structs(column.flatten(), len(column))
    elif pa.types.is_map(kind):
        entries = _of_structs([column.keys, column.items], len(column.keys))
        found = _of_runs(entries, cells(column.offsets))
    elif pa.types.is_list(kind):
        found = _of_runs(hashes(column.values), cells(column.offsets))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        found = _of_texts(column)
    else:
        found = _mixed(_numbers(column))
    return np.where(valid(column), found, np.uint64(0)) if column.null_count else found


def combined(first: Hashes, second: Hashes) -> Hashes:
    """Combine two hashes of each row into one."""
    return _mixed(first * _FACTOR + second)


def _numbers(column: pa.Array) -> Hashes:
    """Return cells of fixed width as 64-bit numbers."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.uint64)
    if pa.types.is_boolean(column.type):
        return booleans(column).astype(np.uint64)
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return cells(comparable(column)).astype(np.int64).view(np.uint64)


def _of_structs(fields: list[pa.Array], count: int) -> Hashes:
    """Hash structs. Null fields at the end do not matter, because fields may be added to a UDT."""
    found = np.zeros(count, np.uint64)
    for field, factor in zip(fields, _powers(len(fields)), strict=True):
        found += hashes(field) * factor
    return _mixed(found)


def _of_texts(column: pa.Array) -> Hashes:
    """Hash texts or blobs as runs of words; the last word is padded with zeros."""
    count = len(column)
    if not count:
        return np.zeros(0, np.uint64)
    _, bounds, data = column.buffers()
    offsets = np.frombuffer(bounds, np.int32, count + 1, column.offset * 4).astype(np.int64)
    size = int(offsets[-1] - offsets[0])
    taken = np.frombuffer(data, np.uint8, size, int(offsets[0])) if size else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    ends = np.cumsum(-(-lengths // _WORD))
    starts = np.concatenate([[0], ends])
    padded = np.zeros(int(ends[-1]) * _WORD, np.uint8)
    if (lengths == (length := int(lengths[0]))).all():
        padded.reshape(count, -1)[:, :length] = taken.reshape(count, length)
    else:
        shifts = starts[:-1] * _WORD - (offsets[:-1] - offsets[0])
        padded[np.arange(size) + np.repeat(shifts, lengths)] = taken
    return _mixed(_of_runs(padded.view(np.uint64), starts) + lengths.view(np.uint64))


def _of_runs(elements: Hashes, offsets: Indices) -> Hashes:
    """Return a hash of each run of elements, which depends on their order and their number."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    longest = int(lengths.max(initial=0))
    if (lengths == longest).all():
        first, end = (int(offsets[0]), int(offsets[-1])) if longest else (0, 0)
        rows = elements[first:end].reshape(len(lengths), longest)
        return _mixed((rows * _powers(longest)).sum(axis=1, dtype=np.uint64) + np.uint64(longest))
    places = np.arange(int(offsets[0]), int(offsets[-1])) - np.repeat(starts, lengths)
    terms = elements[int(offsets[0]) : int(offsets[-1])] * _powers(longest)[places]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    relative = offsets - offsets[0]
    return _mixed(sums[relative[1:]] - sums[relative[:-1]] + lengths.astype(np.uint64))


def _powers(count: int) -> Hashes:
    """Return the first powers of the factor."""
    found: Hashes = np.cumprod(np.full(count, _FACTOR), dtype=np.uint64)
    return found


def _mixed(numbers: Hashes) -> Hashes:
    """Mix numbers so that each bit affects all bits of the result (a step of SplitMix64)."""
    found = numbers + _FACTOR  # so that 0 does not become 0, the hash of null
    found = (found ^ found >> np.uint64(30)) * np.uint64(0xBF58_476D_1CE4_E5B9)
    found = (found ^ found >> np.uint64(27)) * np.uint64(0x94D0_49BB_1331_11EB)
    mixed: Hashes = found ^ found >> np.uint64(31)
    return mixed
