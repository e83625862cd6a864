"""Keys of log rows, and removal of rows that were delivered before."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader._arrow import NO_TEXT, indices, to_arrow
from cdc_reader._time import Micros
from cdc_reader.cql.schema import BATCH_SEQ_NO, STREAM_ID, TIME
from cdc_reader.reading.cursor import Mark, RowKey, RowName
from cdc_reader.streams.stream import StreamId

ROW_KEY = STREAM_ID, TIME, BATCH_SEQ_NO
_SECOND = 1_000_000


def runs(batch: pa.RecordBatch) -> Iterator[tuple[StreamId, int, int]]:
    """Yield the stream, first index and end index of each run of rows from one stream.

    The end index is exclusive.
    """
    if not batch.num_rows:
        return
    streams = batch.column(STREAM_ID)
    changes = pc.not_equal(streams.slice(1), streams.slice(0, len(streams) - 1))
    firsts = [0, *(at + 1 for at in pc.indices_nonzero(changes).to_pylist()), len(streams)]
    for first, end in pairwise(firsts):
        yield StreamId(streams[first].as_py()), first, end


def key_at(batch: pa.RecordBatch, row: int) -> RowKey:
    """Return the key of one row."""
    time = uuid.UUID(batch.column(TIME)[row].as_py()).bytes
    return RowKey(time, batch.column(BATCH_SEQ_NO)[row].as_py())


def keys(batch: pa.RecordBatch) -> Iterator[RowName]:
    """Yield the stream and key of every row."""
    columns = (batch.column(name).to_pylist() for name in ROW_KEY)
    for stream, time, sequence in zip(*columns, strict=True):
        yield StreamId(stream), RowKey(uuid.UUID(time).bytes, sequence)


def names_in(batches: Iterable[pa.RecordBatch]) -> frozenset[RowName]:
    """Return the names of all rows of the batches."""
    return frozenset(name for batch in batches for name in keys(batch))


def streams_in(batch: pa.RecordBatch) -> list[bytes]:
    """Return the distinct streams of the batch."""
    found: list[bytes] = batch.column(STREAM_ID).unique().to_pylist()
    return found


def rows_named(batch: pa.RecordBatch, names: Collection[RowName]) -> pa.RecordBatch:
    """Return the rows of the batch that have these names."""
    return batch.take(indices([at for at, name in enumerate(keys(batch)) if name in names]))


def rows_of(batch: pa.RecordBatch, is_wanted: Callable[[bytes], bool]) -> pa.RecordBatch:
    """Return the rows of wanted streams, or the batch itself if it has no other rows."""
    column = batch.column(STREAM_ID)
    found = column.unique()
    are_wanted = np.array([is_wanted(stream) for stream in found.to_pylist()], bool)
    if are_wanted.all():
        return batch
    own = found.filter(to_arrow(are_wanted))
    return batch.filter(pc.is_in(column, value_set=own))


def leave_out(batch: pa.RecordBatch, marks: Mapping[StreamId, Mark]) -> pa.RecordBatch:
    """Return the batch without the rows that `marks` cover.

    If the marks cover none of its rows, the batch itself is returned.
    """
    if not marks:
        return batch
    kept: list[int] = []
    for stream, first, end in runs(batch):
        mark = marks.get(stream)
        rows = range(first, end)
        kept += rows if mark is None else [at for at in rows if key_at(batch, at) not in mark]
    return batch if len(kept) == batch.num_rows else batch.take(indices(kept))


def leave_out_keys(batch: pa.RecordBatch, left_out: frozenset[RowKey]) -> pa.RecordBatch:
    """Return the batch without rows that have one of these keys, in any stream."""
    if not left_out:
        return batch
    kept = [at for at, (_, key) in enumerate(keys(batch)) if key not in left_out]
    return batch.take(indices(kept))


class Deduplicator:
    """Distinguishes new rows from delivered rows when the same span is read repeatedly.

    Keys are kept as Arrow arrays, so that a row seen again needs no Python object. They are dropped
    once their span is no longer read. The key alone identifies a row, so a write that is logged in
    two streams (see `reading.late.strays`) is delivered from the stream that is read first.
    """

    def __init__(self) -> None:
        self._delivered: dict[int, pa.Array] = {}
        self._newest: dict[StreamId, RowKey] = {}

    def has_new(self, batch: pa.RecordBatch) -> bool:
        """Return whether the batch has rows that `new` has not seen.

        These rows are not marked as seen.
        """
        return len(self._unseen(_names(batch))) > 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Mark the rows of the batch as seen."""
        for _ in self.new(batch):
            pass

    def add_keys(self, keys_seen: Iterable[RowKey]) -> None:
        """Mark the rows with these keys as seen."""
        by_second: dict[int, list[str]] = {}
        for key in keys_seen:
            name = f"{uuid.UUID(bytes=key.time)}{key.seq}"
            by_second.setdefault(key.micros // _SECOND, []).append(name)
        for second, names in by_second.items():
            self._keep(pa.array(names), second * _SECOND)

    def left(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the unseen rows of the batch, without marking them as seen."""
        return batch.take(self._unseen(_names(batch)))

    def new(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Mark the unseen rows as seen, and yield them in runs, each with a flag.

        The flag is True if the rows of the run are behind: rows of the same streams with higher
        keys were delivered before.
        """
        names = _names(batch)
        unseen = self._unseen(names)
        if not len(unseen):
            return
        rows = batch if len(unseen) == batch.num_rows else batch.take(unseen)
        found = list(keys(rows))
        self._keep(names.take(unseen), max(key.micros for _, key in found))
        yield from self._in_runs(rows, found)

    def forget(self, position: Micros) -> None:
        """Drop the keys of rows written before `position` (µs), rounded down to a second."""
        first = position // _SECOND
        self._delivered = {at: names for at, names in self._delivered.items() if at >= first}
        self._newest = {s: key for s, key in self._newest.items() if key.micros >= position}

    def _keep(self, names: pa.Array, latest: Micros) -> None:
        """Remember `names`, whose newest write time is `latest` (µs), until `forget` drops them.

        Names whose write times fall in the same second share an array, because looking up names
        in many small arrays takes far longer.
        """
        kept = self._delivered.get(second := latest // _SECOND)
        self._delivered[second] = names if kept is None else pa.concat_arrays([kept, names])

    def _unseen(self, names: pa.Array) -> pa.Array:
        """Return the indices of the names that have not been seen."""
        return pc.indices_nonzero(pc.invert(pc.is_in(names, value_set=self._seen())))

    def _seen(self) -> pa.Array:
        arrays = list(self._delivered.values())
        return pa.concat_arrays(arrays) if arrays else pa.nulls(0, pa.string())

    def _in_runs(
        self, rows: pa.RecordBatch, found: Sequence[tuple[StreamId, RowKey]]
    ) -> Iterator[tuple[pa.RecordBatch, bool]]:
        at = 0
        for behind, run in groupby([self._is_behind(stream, key) for stream, key in found]):
            length = len(list(run))
            yield rows.slice(at, length), behind
            at += length

    def _is_behind(self, stream: StreamId, key: RowKey) -> bool:
        newest = self._newest.get(stream)
        if newest is not None and key < newest:
            return True
        self._newest[stream] = key
        return False


def _names(batch: pa.RecordBatch) -> pa.Array:
    """Return each row's name: a string of its time and its sequence number."""
    time, sequence = (batch.column(name).cast(pa.string()) for name in (TIME, BATCH_SEQ_NO))
    return pc.binary_join_element_wise(time, sequence, NO_TEXT)
