"""Writes a cursor down as JSON, for the stores and for Spark's offsets.

A row key is packed as the 16 bytes of `cdc$time`, followed by the sequence number as 4 bytes,
big-endian and signed; a row name begins with the 16 bytes of its stream, and is base64. Times are
in µs. `marks` packs the marks, which are stored one by one.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from cdc_reader._time import BEGINNING, Micros
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import (
    Checkpoint,
    KnownGenerations,
    LateState,
    Mark,
    RowKey,
    RowName,
    SnapshotProgress,
    unreadable,
)
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.ring import TokenRange, TokenRanges
from cdc_reader.streams.stream import StreamId

_NAME = struct.Struct(">16s16si")
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors that functions of this module raise for text that it did not write."""


def pack_cursor(checkpoint: Checkpoint) -> str:
    """Return all of a checkpoint as JSON, except its position, marks and table."""
    return json.dumps(cursor_to_json(checkpoint))


def unpack_cursor(
    text: object, position: Micros, marks: Mapping[StreamId, Mark], table: TableName
) -> Checkpoint:
    """Return the checkpoint that was packed; raise CheckpointError for any other text."""
    try:
        stored = json.loads(text)  # type: ignore[arg-type]
        checkpoint = cursor_from_json(stored, position, marks, table)
    except UNREADABLE:
        raise unreadable("cursor", text, "an object as pack_cursor writes it") from None
    return checkpoint


def cursor_to_json(cursor: Checkpoint) -> dict[str, Any]:
    """Return a cursor as JSON, except its position, marks and table.

    The order of the keys is part of the format of Spark's offsets.
    """
    return {
        **({} if cursor.table_id is None else {"id": str(cursor.table_id)}),
        **({} if cursor.snapshot is None else {"snapshot": _snapshot_to_json(cursor.snapshot)}),
        "ttl": [list(change) for change in cursor.ttls.changes],
        **cursor.ttls.logs_to_json(),
        **(
            {} if cursor.generations is None else {"generations": known_to_json(cursor.generations)}
        ),
        **({} if cursor.late is None else {"late": _late_to_json(cursor.late)}),
    }


def cursor_from_json(
    stored: Mapping[str, Any],
    position: Micros,
    marks: Mapping[StreamId, Mark],
    table: TableName | None = None,
) -> Checkpoint:
    """Parse a cursor.

    Raises CheckpointError for an impossible value, and one of `UNREADABLE` for any other text.
    """
    cursor = Checkpoint(
        position,
        known_from_json(stored["generations"]) if "generations" in stored else None,
        marks,
        _late_from_json(stored["late"]) if "late" in stored else None,
        UUID(stored["id"]) if "id" in stored else None,
        TtlHistory.from_json(stored["ttl"], stored),
        _snapshot_from_json(stored["snapshot"]) if stored.get("snapshot") else None,
        table,
    )
    cursor.check()
    return cursor


def names_to_json(names: Iterable[RowName]) -> list[str]:
    """Return row names as JSON, in order."""
    return [
        base64.b64encode(_NAME.pack(stream, key.time, key.seq)).decode()
        for stream, key in sorted(names, key=lambda name: (name[0], name[1].order))
    ]


def names_from_json(texts: Iterable[str]) -> frozenset[RowName]:
    """Parse row names; raise TypeError or ValueError if they are invalid."""
    found = (_NAME.unpack(base64.b64decode(text, validate=True)) for text in texts)
    try:
        names = frozenset((StreamId(stream), RowKey(time, seq)) for stream, time, seq in found)
    except struct.error as error:
        raise ValueError(str(error)) from None
    if not all(timeuuid.is_valid(key.time) for _, key in names):
        raise ValueError("expected time UUIDs")
    return names


def known_to_json(known: KnownGenerations) -> dict[str, Any]:
    """Return known generations as JSON."""
    dropped = {} if known.dropped == BEGINNING else {"dropped": known.dropped}
    return {"since": known.since, "known": list(known.starts), **dropped}


def known_from_json(stored: Mapping[str, Any]) -> KnownGenerations:
    """Parse known generations; raise KeyError, TypeError or ValueError if they are invalid."""
    since, starts = stored["since"], tuple(stored["known"])
    return KnownGenerations(since, Timeline(starts).starts, stored.get("dropped", BEGINNING))


def _late_to_json(late: LateState) -> dict[str, Any]:
    return {
        **({} if late.start == BEGINNING else {"since": late.start}),
        "ends": list(late.ends),
        "reads": list(late.reads),
        "readAt": late.read_at,
        "confidence": late.confidence,
        "known": names_to_json(late.known),
        **({} if late.snapshot_at is None else {"snapshot": late.snapshot_at}),
    }


def _late_from_json(stored: Mapping[str, Any]) -> LateState:
    ends, reads = tuple(stored["ends"]), tuple(stored["reads"])
    start, snapshot_at = stored.get("since", BEGINNING), stored.get("snapshot")
    if not ends or len(ends) != len(reads):
        raise ValueError("expected the same number of reads and ends")
    confidence, known = int(stored["confidence"]), names_from_json(stored["known"])
    return LateState(start, ends, reads, confidence, stored["readAt"], known, snapshot_at)


def _snapshot_to_json(snapshot: SnapshotProgress) -> dict[str, Any]:
    return {
        "began": snapshot.began,
        "generation": snapshot.generation,
        "rows": snapshot.rows,
        "done": [[each.start, each.end] for each in snapshot.done],
    }


def _snapshot_from_json(stored: Mapping[str, Any]) -> SnapshotProgress:
    done = TokenRanges(TokenRange(int(start), int(end)) for start, end in stored["done"])
    return SnapshotProgress(stored["began"], stored["generation"], done, stored["rows"])
