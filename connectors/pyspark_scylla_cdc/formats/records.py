"""Records: all rows of one stream with one ``cdc$time``, which one write put there at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_scylla_cdc.formats.arrays import Indices, Mask, booleans

STREAM_ID = "cdc$stream_id"
TIME = "cdc$time"


def whole_records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that begin and end with a record.

    A page may end in the middle of a record: its rows wait for the rest. Only a record as
    long as many pages makes the memory this takes more than one page's.
    """
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if held and _same_record(held[0], 0, batch, batch.num_rows - 1):
            held.append(batch)
            continue
        joined = pa.concat_batches([*held, batch])
        last = int(np.flatnonzero(starts(joined))[-1])
        if last:
            yield joined.slice(0, last)
        held = [joined.slice(last)]
    if held:
        yield pa.concat_batches(held)


def starts(batch: pa.RecordBatch) -> Mask:
    """Which rows are the first of their record; `batch` holds each stream's in order."""
    first = np.ones(batch.num_rows, bool)
    if batch.num_rows > 1:
        first[1:] = _changes(batch.column(TIME)) | _changes(batch.column(STREAM_ID))
    return first


def numbers(batch: pa.RecordBatch) -> Indices:
    """The number of each row's record, from 0."""
    return np.cumsum(starts(batch)) - 1


def _changes(column: pa.Array) -> Mask:
    return booleans(pc.not_equal(column[1:], column[:-1]))


def _same_record(one: pa.RecordBatch, at: int, other: pa.RecordBatch, there: int) -> bool:
    return all(one.column(name)[at] == other.column(name)[there] for name in (TIME, STREAM_ID))
