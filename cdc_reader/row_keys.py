"""Keys of the rows in a batch, and leaving out rows by their keys or streams."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader.ids import StreamId
from cdc_reader.progress import Mark, RowKey

STREAM, TIME, SEQUENCE = "cdc$stream_id", "cdc$time", "cdc$batch_seq_no"


def runs(batch: pa.RecordBatch) -> Iterator[tuple[StreamId, int, int]]:
    """For each run of rows of one stream: the stream, its first row and the row after its last."""
    if not batch.num_rows:
        return
    streams = batch.column(STREAM)
    changes = pc.not_equal(streams.slice(1), streams.slice(0, len(streams) - 1))
    firsts = [0, *(at + 1 for at in pc.indices_nonzero(changes).to_pylist()), len(streams)]
    for first, end in pairwise(firsts):
        yield StreamId(streams[first].as_py()), first, end


def key_at(batch: pa.RecordBatch, row: int) -> RowKey:
    """The key of one row."""
    time = uuid.UUID(batch.column(TIME)[row].as_py()).bytes
    return RowKey(time, batch.column(SEQUENCE)[row].as_py())


def keys(batch: pa.RecordBatch) -> Iterator[tuple[StreamId, RowKey]]:
    """The stream and key of every row."""
    columns = (batch.column(name).to_pylist() for name in (STREAM, TIME, SEQUENCE))
    for stream, time, sequence in zip(*columns, strict=True):
        yield StreamId(stream), RowKey(uuid.UUID(time).bytes, sequence)


def streams_in(batch: pa.RecordBatch) -> list[bytes]:
    """The streams that have rows in it, each once."""
    found: list[bytes] = batch.column(STREAM).unique().to_pylist()
    return found


def rows_of(batch: pa.RecordBatch, is_wanted: Callable[[bytes], bool]) -> pa.RecordBatch:
    """The rows of the streams that are wanted; the batch as it is if it has no others."""
    found = streams_in(batch)
    own = list(filter(is_wanted, found))
    if len(own) == len(found):
        return batch
    column = batch.column(STREAM)
    return batch.filter(pc.is_in(column, value_set=pa.array(own, column.type)))


def leave_out(batch: pa.RecordBatch, marks: Mapping[StreamId, Mark]) -> pa.RecordBatch:
    """The batch without the rows that `marks` name; as it is where they name none."""
    if not marks:
        return batch
    kept: list[int] = []
    for stream, first, end in runs(batch):
        mark = marks.get(stream)
        rows = range(first, end)
        kept += rows if mark is None else [at for at in rows if key_at(batch, at) not in mark]
    return batch if len(kept) == batch.num_rows else batch.take(pa.array(kept, pa.int64()))
