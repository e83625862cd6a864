"""Loads recorded logs into a server, byte for byte.

A log table accepts plain INSERTs, and values can be sent as bytes without conversion. A recording
can thus be loaded cell by cell, and compared with a reader's result.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from cdc_reader.cql.names import TableName, quoted
from cdc_reader.streams.generation import StreamGroup
from tests.recordings.comparison import Cells, Result

_IN_FLIGHT = 128
_DESCRIBE = (
    "INSERT INTO system_distributed.cdc_streams_descriptions_v2 (time, range_end, streams) "
    "VALUES (?, ?, ?)"
)
_FORGET = "DELETE FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?"
_PUBLISH = (
    "INSERT INTO system_distributed.cdc_generation_timestamps (time, key) VALUES (?, 'timestamps')"
)
_WITHDRAW = (
    "DELETE FROM system_distributed.cdc_generation_timestamps WHERE time = ? AND key = 'timestamps'"
)


def read_recording(path: Path) -> Any:
    """Load a recording from a JSON file, gzipped or not."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as text:
        return json.load(text)


def load_rows(session: Any, table: TableName, recorded: Result) -> None:
    """Insert the rows with a driver session. Null cells are not written.

    The first column must be the table's whole partition key, as in every log.
    """
    names = ", ".join(quoted(name) for name, _ in recorded.columns)
    marks = ", ".join("?" for _ in recorded.columns)
    cql = f"INSERT INTO {table.cql} ({names}) VALUES ({marks})"
    insert = session.prepare(cql)
    rows = iter(recorded.rows)
    while several := list(islice(rows, _IN_FLIGHT)):
        for answer in [session.execute_async(_bound(insert, row)) for row in several]:
            answer.result()


@contextmanager
def published(session: Any, start: int, groups: Iterable[StreamGroup]) -> Iterator[None]:
    """Publish a generation that starts `start` ms after 1970, and remove it afterwards.

    Like a server, it publishes the descriptions first. All readers of the server see the
    generation, so `start` must be before the generations of all other tests.
    """
    moment = _bigint(start)
    for group in groups:
        cells = (moment, _bigint(group.range_end), _blobs(group.streams))
        _execute(session, _DESCRIBE, cells)
    _execute(session, _PUBLISH, (moment,))
    try:
        yield
    finally:
        _execute(session, _WITHDRAW, (moment,))
        _execute(session, _FORGET, (moment,))


def _execute(session: Any, cql: str, cells: Cells) -> None:
    session.execute(_bound(session.prepare(cql), cells))


def _bound(statement: Any, cells: Cells) -> Any:
    """Bind serialized cells, bypassing the driver's serialization.

    Null cells are bound as unset, except in the first column.
    """
    bound = statement.bind((None,))
    unset = bound.values[1:]
    rest = (mark if cell is None else cell for mark, cell in zip(unset, cells[1:], strict=True))
    bound.values = [cells[0], *rest]
    return bound


def _bigint(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def _blobs(values: Sequence[bytes]) -> bytes:
    """Serialize a CQL set of blobs in the given order."""
    sized = (len(value).to_bytes(4, "big") + value for value in values)
    return len(values).to_bytes(4, "big") + b"".join(sized)
