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
from functools import reduce
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_reader import (
    CdcReader,
    ChangeFormat,
    Checkpoint,
    ColumnKind,
    RangeComplete,
    ReadConfig,
    RowsRead,
    SnapshotRows,
    TableSchema,
    WindowComplete,
    deleted_rows,
)

FILES = 16
"""A change rewrites the whole file of its partition. With more files, each file is smaller."""
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
        if table.of_kind(ColumnKind.STATIC):
            raise SystemExit(f"{table.name} has static columns, which this example does not copy")
        key = [changes[column.name] for column in table.columns if column.is_key]
        if any(pa.types.is_nested(column.type) for column in key):
            raise SystemExit(f"{table.name} has a key column that Arrow cannot group by")
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
        rows = pq.read_table(file) if file.exists() else pa.table({})
        for table, batch in changes:
            rows = applied(rows, table, pa.table(batch))
        if rows.num_columns:
            content = pa.BufferOutputStream()
            pq.write_table(rows, content)
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


def applied(rows: pa.Table, table: TableSchema, changes: pa.Table) -> pa.Table:
    """Return the rows that result from applying the changes in order."""
    first = 0
    for number, kind in enumerate(changes["_change_type"].to_pylist()):
        if kind in ("delete_partition", "delete_range"):
            rows = merged(rows, table, changes.slice(first, number - first))
            if rows.num_rows:
                rows = rows.filter(pc.invert(deleted_rows(table, changes.slice(number, 1), rows)))
            first = number + 1
    return merged(rows, table, changes.slice(first))


def merged(rows: pa.Table, table: TableSchema, changes: pa.Table) -> pa.Table:
    """Return the rows after changes of rows: each value is the one that was written last."""
    if not changes.num_rows:
        return rows
    key = [column.name for column in table.columns if column.is_key]
    values = [column.name for column in table.values]
    every = pa.concat_tables(
        [rows, changes.select([*key, *values, "_inserted"])], promote_options="default"
    )
    old, unchanged = np.ones(rows.num_rows, bool), np.zeros(rows.num_rows, bool)
    deletes = np.append(unchanged, pc.equal(changes["_change_type"], "delete"))
    inserts = pc.fill_null(every["_inserted"], fill_value=False).to_numpy()
    sets = [np.append(old, modifies(changes, name)) for name in values]
    keys, (deleted, *last) = last_places(every.select(key), [deletes, inserts, *sets])
    deleted = pc.fill_null(deleted, -1)
    inserted, *places = (pc.if_else(pc.greater(it, deleted), it, None) for it in last)
    cells = [every[name].take(place) for name, place in zip(values, places, strict=True)]
    is_inserted = pc.is_valid(inserted)
    is_there = reduce(pc.or_, map(pc.is_valid, cells), is_inserted)
    found = pa.table([*keys, *cells, is_inserted], names=[*key, *values, "_inserted"])
    return found.select([*(column.name for column in table.columns), "_inserted"]).filter(is_there)


def last_places(
    keys: pa.Table, masks: list[np.ndarray]
) -> tuple[list[pa.ChunkedArray], list[pa.ChunkedArray]]:
    """Return each key once, and for each mask, the place of its last row in the mask, or null."""
    names = [f"key {number}" for number in range(keys.num_columns)]
    numbers = np.arange(keys.num_rows)
    places = {f"mask {n}": pa.array(numbers, mask=~mask) for n, mask in enumerate(masks)}
    grouped = pa.table({**dict(zip(names, keys.columns, strict=True)), **places}).group_by(names)
    found = grouped.aggregate([(name, "max") for name in places])
    return [found[name] for name in names], [found[f"{name}_max"] for name in places]


def modifies(changes: pa.Table, column: str) -> np.ndarray:
    """Return a mask of the changes that wrote the column."""
    lists = changes["_modified_columns"].combine_chunks()
    found = np.zeros(changes.num_rows, bool)
    rows = pc.list_parent_indices(lists).to_numpy()
    found[rows[pc.equal(lists.flatten(), column).to_numpy(zero_copy_only=False)]] = True
    return found


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
