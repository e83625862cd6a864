"""Prunes marks that no longer matter, and packs them for storage.

A row key is packed as the 16 bytes of `cdc$time`, followed by the sequence number as 4 bytes,
big-endian and signed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from cdc_reader._time import Micros
from cdc_reader.reading.cursor import Mark, RowKey, unreadable
from cdc_reader.streams.stream import StreamId


def newest(mark: Mark) -> Micros | None:
    """Return the newest write time, in µs, of a mark's rows; None if the mark has no rows."""
    times = [key.micros for key in mark.rows]
    if mark.acked_through is not None:
        times.append(mark.acked_through.micros)
    return max(times, default=None)


def prune_marks(marks: Mapping[StreamId, Mark], position: Micros) -> dict[StreamId, Mark]:
    """Remove rows before the position from the marks, and drop marks that become empty."""
    return {
        stream: _from(mark, position) for stream, mark in marks.items() if mark.reaches(position)
    }


def _from(mark: Mark, position: Micros) -> Mark:
    last = mark.acked_through
    if last is not None and last.micros < position:
        last = None
    return Mark(last, frozenset(key for key in mark.rows if key.micros >= position))


_KEY = struct.Struct(">16si")


def pack(keys: Iterable[RowKey]) -> bytes:
    """Return the packed keys, one after the other."""
    return b"".join(_KEY.pack(key.time, key.seq) for key in keys)


def pack_mark(mark: Mark) -> tuple[bytes, bytes]:
    """Pack `acked_through` (empty for None), and the individual rows in order."""
    return pack([mark.acked_through] if mark.acked_through else []), pack(sorted(mark.rows))


def unpack(packed: bytes) -> list[RowKey]:
    """Return the packed keys; raise CheckpointError if the last key is incomplete."""
    if len(packed) % _KEY.size:
        raise unreadable("mark", f"{len(packed)} bytes", f"a multiple of {_KEY.size}")
    return [RowKey(time, seq) for time, seq in _KEY.iter_unpack(packed)]


def unpack_mark(acked_through: bytes, rows: bytes) -> Mark:
    """Return the mark that `pack_mark` packed into two values."""
    return Mark(next(iter(unpack(acked_through)), None), frozenset(unpack(rows)))
