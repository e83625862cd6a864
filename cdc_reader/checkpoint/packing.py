"""Row keys as bytes: the 16 of `cdc$time`, then 4 of the sequence number, big-endian and signed."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from cdc_reader.errors import CheckpointError
from cdc_reader.progress import Mark, RowKey

_KEY = struct.Struct(">16si")


def pack(keys: Iterable[RowKey]) -> bytes:
    """The keys, one after another."""
    return b"".join(_KEY.pack(key.time, key.seq) for key in keys)


def pack_mark(mark: Mark) -> tuple[bytes, bytes]:
    """`upto`, empty for none, and the single rows, in order."""
    return pack([mark.upto] if mark.upto else []), pack(sorted(mark.rows))


def unpack(packed: bytes) -> list[RowKey]:
    """The keys in `packed`; CheckpointError if it holds none whole."""
    if len(packed) % _KEY.size:
        raise CheckpointError(
            f"a mark of {len(packed)} bytes: expected keys of {_KEY.size} bytes each; "
            "the checkpoint was written by something else"
        )
    return [RowKey(time, seq) for time, seq in _KEY.iter_unpack(packed)]


def unpack_mark(upto: bytes, rows: bytes) -> Mark:
    """The mark of its two columns."""
    return Mark(next(iter(unpack(upto)), None), frozenset(unpack(rows)))
