"""Rows handed on before they settled: which they are, and which of them came out of order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader.ids import StreamId
from cdc_reader.progress import RowKey
from cdc_reader.row_keys import SEQUENCE, STREAM, TIME, keys


class Unsettled:
    """Tells new rows from those delivered before, where the same span is read again and again.

    Keys are kept as Arrow arrays, so that a row seen again costs no Python object; they are
    forgotten once the span they are in is no longer read.
    """

    def __init__(self) -> None:
        self._reads: deque[tuple[int, list[pa.Array]]] = deque()
        self._newest: dict[StreamId, RowKey] = {}

    def begin(self, latest: int) -> None:
        """A read begins whose rows have write times before `latest`, in µs."""
        self._reads.append((latest, []))

    def has_new(self, batch: pa.RecordBatch) -> bool:
        """Whether some rows were not seen before; they still count as not seen."""
        return len(self._unseen(_names(batch))) > 0

    def new(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """The rows not seen before, in runs; each run with whether it came behind others.

        A row comes behind if a row of its stream with a higher key was delivered before.
        """
        names = _names(batch)
        unseen = self._unseen(names)
        if not len(unseen):
            return
        self._reads[-1][1].append(names.take(unseen))
        rows = batch if len(unseen) == batch.num_rows else batch.take(unseen)
        yield from self._in_runs(rows)

    def forget(self, position: int) -> None:
        """Rows before `position` will not be read again."""
        while self._reads and self._reads[0][0] <= position:
            self._reads.popleft()
        self._newest = {s: key for s, key in self._newest.items() if key.micros >= position}

    def _unseen(self, names: pa.Array) -> pa.Array:
        """The places of those that were not seen before."""
        return pc.indices_nonzero(pc.invert(pc.is_in(names, value_set=self._seen())))

    def _seen(self) -> pa.Array:
        arrays = [array for _, read in self._reads for array in read]
        return pa.concat_arrays(arrays) if arrays else pa.array([], pa.binary())

    def _in_runs(self, rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bool]]:
        at = 0
        for behind, run in groupby(list(map(self._is_behind, *zip(*keys(rows), strict=True)))):
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
    """Each row's stream, time and sequence number as one binary value."""
    time, sequence = (batch.column(name).cast(pa.string()) for name in (TIME, SEQUENCE))
    parts = (batch.column(STREAM), time.cast(pa.binary()), sequence.cast(pa.binary()))
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
