"""Prunes marks that no longer matter, and packs the parts of a checkpoint for storage.

A row key is packed as the 16 bytes of `cdc$time`, followed by the sequence number as 4 bytes,
big-endian and signed. The TTL history of a log is a JSON object. Its field `changes` contains pairs
of a time (µs) and the TTL that applies from then on (seconds). Its field `logs` contains the ids of
the log. If there are several ids, `log_lost` is the time (µs) before which all rows are gone. The
progress of a snapshot is a JSON object that contains the completed ranges as pairs of tokens.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from uuid import UUID

from cdc_reader._time import Micros
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.progress import Mark, RowKey, SnapshotProgress, unreadable
from cdc_reader.streams.ring import TokenRange, TokenRanges
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


def unpack_id(text: str | None) -> UUID | None:
    """Parse the id of a table; raise CheckpointError for any other text."""
    try:
        return UUID(text) if text else None
    except (ValueError, TypeError, AttributeError):
        raise unreadable("table_id", text, "a UUID") from None


def pack_ttls(ttls: TtlHistory) -> str | None:
    """Return the history as text, or None if no TTL is known."""
    if not (ttls.changes or ttls.logs):
        return None
    return json.dumps({"changes": ttls.changes, **ttls.logs_to_json()})


def unpack_ttls(text: str | None) -> TtlHistory:
    """Parse a history of TTLs; raise CheckpointError for any other text."""
    try:
        said = json.loads(text) if text else {"changes": []}
        return TtlHistory.from_json(said["changes"], said)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise unreadable("ttls", text, "an object with changes and logs") from None


def pack_snapshot(snapshot: SnapshotProgress | None) -> str | None:
    """Return the progress of a snapshot as text, or None if there is no snapshot."""
    if snapshot is None:
        return None
    return json.dumps(
        {
            "began": snapshot.began,
            "generation": snapshot.generation,
            "rows": snapshot.rows,
            "done": [[each.start, each.end] for each in snapshot.done],
        }
    )


def unpack_snapshot(text: str | None) -> SnapshotProgress | None:
    """Parse the progress of a snapshot; raise CheckpointError for any other text."""
    if text is None:
        return None
    try:
        said = json.loads(text)
        done = TokenRanges(TokenRange(int(start), int(end)) for start, end in said["done"])
        return SnapshotProgress(said["began"], said["generation"], done, said["rows"])
    except (ValueError, TypeError, KeyError):
        expected = "an object with began, generation, rows and done"
        raise unreadable("snapshot", text, expected) from None
