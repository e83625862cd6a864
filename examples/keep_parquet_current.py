"""Keep a folder of Parquet files equal to a ScyllaDB table.

    python examples/keep_parquet_current.py HOST:PORT KEYSPACE.TABLE FOLDER [UNTIL]

Each file contains the current rows of some of the partitions. The first run writes the existing
rows. Each later run continues where the last one ended, even if it was killed. UNTIL is a time such
as ``now``. Without it, the program runs until Ctrl-C or SIGTERM. The files have one column more
than the table: `_inserted` is true for rows that an INSERT created, which remain when they lose
their last value.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_reader import (
    CdcReader,
    ChangeFormat,
    Checkpoint,
    RangeComplete,
    ReadConfig,
    RowsRead,
    SnapshotRows,
    TableSchema,
    WindowComplete,
    fold,
)

FILES = 16
"""A change rewrites the whole file of its partition. With more files, each file is smaller.

Choose the number before the first run: it decides which file has the rows of a partition.
"""
BYTES, SECONDS = 64 * 1024 * 1024, 10
"""The files are written when this many bytes of changes are held, or after this many seconds."""


class Folder:
    """The rows of a table in Parquet files, and a checkpoint of the changes that they contain.

    The files are written before the checkpoint. After a crash in between, all changes since the
    checkpoint are applied again, in the same order, which leads to the same rows.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._checkpoint = path, path / "_checkpoint"  # Parquet readers skip "_*"
        self._pending: dict[int, list[tuple[TableSchema, pa.RecordBatch]]] = defaultdict(list)
        self._bytes, self._written = 0, time.monotonic()
        path.mkdir(parents=True, exist_ok=True)

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint, or None before the first one."""
        if not self._checkpoint.exists():
            return None
        return pickle.loads(self._checkpoint.read_bytes())

    def add(self, table: TableSchema, changes: pa.RecordBatch) -> None:
        """Hold changes until `commit` writes them."""
        cells = [values(changes[column.name]) for column in table.partition_key]
        numbers = [crc32(repr(each).encode()) % FILES for each in zip(*cells, strict=True)]
        for number in set(numbers):
            own = changes.filter(pa.array([each == number for each in numbers]))
            self._pending[number].append((table, own))
        self._bytes += changes.nbytes

    def commit(self, checkpoint: Checkpoint) -> None:
        """Write the changes and then the checkpoint, if a limit is reached."""
        if self._bytes > BYTES or time.monotonic() - self._written > SECONDS:
            self.save(checkpoint)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write the changes and then the checkpoint."""
        for number, changes in self._pending.items():
            self._write(self._path / f"{number:02}.parquet", changes)
        replace(self._checkpoint, pickle.dumps(checkpoint))
        self._pending.clear()
        self._bytes, self._written = 0, time.monotonic()

    def _write(self, file: Path, changes: list[tuple[TableSchema, pa.RecordBatch]]) -> None:
        rows = pq.read_table(file) if file.exists() else None
        table, _ = changes[-1]
        new = pa.concat_tables([pa.table(each) for _, each in changes], promote_options="default")
        content = pa.BufferOutputStream()
        pq.write_table(fold(table, new, rows), content)
        replace(file, content.getvalue())


def values(column: pa.Array) -> list[object]:
    """Return a column's values; times become numbers, because Python's years end with 9999."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    return column.to_pylist()


def replace(file: Path, content: bytes) -> None:
    """Replace a file atomically: after a crash, it has either its old or its new content."""
    new = file.with_name(f"_{file.name}.new")
    with new.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(file)


def keep_current(reader: CdcReader, folder: Folder, until: str | None = None) -> None:
    """Write the existing rows if there is no checkpoint yet, then apply the changes."""
    reached = folder.checkpoint()
    if reached is None:
        reached = reader.table.begin_snapshot()
        folder.save(reached)  # first: a second snapshot would not show rows deleted meanwhile
    wanted = ChangeFormat(include_delta=True, preimages="none", range_deletes="emit")
    for delivery in reader.follow_change_batches(reached, until, format=wanted, snapshot="initial"):
        match delivery:
            case SnapshotRows() | RowsRead():
                folder.add(delivery.schema.base, delivery.batch)
            case RangeComplete() | WindowComplete():
                reached = delivery.checkpoint
                folder.commit(reached)
    folder.save(reached)


def main(hosts: str, table: str, path: str, until: str | None = None) -> None:
    """Run until the end, or until Ctrl-C or SIGTERM."""
    with CdcReader(hosts, table, config=ReadConfig(data_loss="fail")) as reader:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: reader.stop())
        keep_current(reader, Folder(Path(path)), until)


if __name__ == "__main__":
    main(*sys.argv[1:])
