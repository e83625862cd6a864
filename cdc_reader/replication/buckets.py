"""Rows in temporary files, in which the rows of a partition are together.

The memory needed depends on the size of a bucket, not on the number of rows. A bucket that is too
large is split again, which only a single large partition can prevent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdc_reader._arrow import to_arrow
from cdc_reader.changes.hashing import combined, hashes

_BITS = 5
_WAYS = 1 << _BITS
_LEVELS = 6
"""How often rows are split at most; further splits would rarely separate partitions."""
_WAITING = 16 << 20
"""The bytes that are collected before they are divided among the files."""
_MOST = 64 << 20
"""The size, in bytes, of a pair of buckets that fits in memory."""
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class Buckets:
    """Rows in files in a folder, by the hash of the columns `partition`."""

    def __init__(
        self, folder: Path, schema: pa.Schema, partition: Sequence[str], level: int = 0
    ) -> None:
        folder.mkdir()
        self.level = level
        self.count = 0
        self.sizes = [0] * _WAYS
        self._folder, self._schema, self._partition = folder, schema, partition
        self._files: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        self._waiting: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self.count += batch.num_rows
        self._waiting.append(batch)
        if sum(each.nbytes for each in self._waiting) >= _WAITING:
            self._write()

    def finish(self) -> Buckets:
        """Complete the files; no rows may be added afterwards."""
        self._write()
        for file in self._files.values():
            file.close()
        self._files.clear()
        return self

    def rows(self, number: int) -> pa.RecordBatch:
        """Return the rows of a bucket, and delete its file."""
        return pa.concat_batches([*self._read(number), *self._none()])

    def split(self, number: int) -> Buckets:
        """Divide the rows of a bucket among the buckets of a new folder, and delete its file."""
        folder = self._folder / f"{number}.split"
        parts = Buckets(folder, self._schema, self._partition, self.level + 1)
        for batch in self._read(number):
            parts.add(batch)
        return parts.finish()

    def _none(self) -> list[pa.RecordBatch]:
        return [
            pa.RecordBatch.from_arrays(
                [pa.array([], f.type) for f in self._schema], schema=self._schema
            )
        ]

    def _read(self, number: int) -> Iterator[pa.RecordBatch]:
        file = self._folder / str(number)
        if file.exists():
            with pa.OSFile(str(file)) as opened, pa.ipc.open_stream(opened) as batches:
                yield from batches
            file.unlink()

    def _write(self) -> None:
        batch, self._waiting = pa.concat_batches([*self._waiting, *self._none()]), []
        of = self._numbers(batch)
        order = np.argsort(of, kind="stable")
        bounds = np.searchsorted(of[order], np.arange(_WAYS + 1))
        rows = batch.take(to_arrow(order))
        for number in range(_WAYS):
            first, end = int(bounds[number]), int(bounds[number + 1])
            if first < end:
                self._append(number, rows.slice(first, end - first))

    def _numbers(self, batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the number of each row's bucket."""
        first, *others = (hashes(batch.column(name)) for name in self._partition)
        for each in others:
            first = combined(first, each)
        shift = np.uint64(_BITS * self.level)
        return ((first >> shift) & np.uint64(_WAYS - 1)).astype(np.int64)

    def _append(self, number: int, rows: pa.RecordBatch) -> None:
        if (file := self._files.get(number)) is None:
            path = str(self._folder / str(number))
            file = pa.ipc.new_stream(path, self._schema, options=_OPTIONS)
            self._files[number] = file
        file.write_batch(rows)
        self.sizes[number] += rows.nbytes


def pairs(one: Buckets, other: Buckets) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield the rows of both in small parts; the rows of a partition are in the same pair."""
    for number in range(_WAYS):
        size = one.sizes[number] + other.sizes[number]
        if size > _MOST and one.level + 1 < _LEVELS:
            yield from pairs(one.split(number), other.split(number))
        elif size:
            yield one.rows(number), other.rows(number)
