"""Finds what has expired in a copy that deltalake writes, and makes changes of it.

The log has no rows for what expires. The copy knows of each row when its first and last values
expire (`cdc_reader.copies.row_state`). A row that has expired as a whole is deleted. If other
values of a row remain, or may remain, its partition is read again from the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from cdc_reader._arrow import to_arrow
from cdc_reader._time import Micros
from cdc_reader.changes.folding.events import distinct, groups_of_both, plain
from cdc_reader.changes.folding.keys import flat
from cdc_reader.changes.frames import columns as names
from cdc_reader.changes.lifetimes import Lifetimes
from cdc_reader.copies.columns import CopyColumns
from cdc_reader.copies.present_rows import present_rows
from cdc_reader.copies.rereading import Rereading
from cdc_reader.copies.row_state import TYPE, before, with_states

if TYPE_CHECKING:
    from deltalake import DeltaTable


def expired(
    table: DeltaTable, columns: CopyColumns, rereading: Rereading, until: Micros
) -> pa.Table | None:
    """Return changes for what has expired up to a time (µs), or None if nothing has."""
    if not _may_have_expired(table, columns, until):
        return None
    wanted = {name: ds.field(name) for name in (*columns.key, columns.state)}
    is_due = ds.field(columns.state).cast(TYPE) < before(until + 1)
    due = table.to_pyarrow_dataset().to_table(wanted, filter=is_due)
    if not due.num_rows:
        return None
    due = with_states(due, columns.state)
    lifetimes = Lifetimes.of_column(flat(due.column(names.EXPIRES)))
    is_gone = lifetimes.whole & (lifetimes.last <= until)
    gone, rest = due.filter(to_arrow(is_gone)), due.filter(to_arrow(~is_gone))
    deleted = gone.select(columns.key).combine_chunks().to_batches()
    times = lifetimes.last[is_gone].tolist()
    found = [rereading.output.deletes(keys, rereading.schema, times) for keys in deleted]
    for keys in distinct(plain(rest.select(columns.partition))).combine_chunks().to_batches():
        horizons = _horizons(table, columns, keys, until)
        found += rereading.partitions(keys, rereading.tokens(keys), horizons)
    return pa.Table.from_batches(found, rereading.schema)


def _may_have_expired(table: DeltaTable, columns: CopyColumns, until: Micros) -> bool:
    """Return whether a file may have values that have expired, from the statistics of files."""
    files = pa.table(table.get_add_actions(flatten=True))
    name = f"min.{columns.state}"
    if name not in files.schema.names:  # of a table without files, or without states
        return f"null_count.{columns.state}" not in files.schema.names and len(files) > 0
    has_due = pc.less(files.column(name), before(until + 1))
    return bool(pc.any(has_due).as_py())


def _horizons(
    table: DeltaTable, columns: CopyColumns, keys: pa.RecordBatch, until: Micros
) -> list[Micros | None]:
    """Return when the last value of each partition expires, if that is after the time."""
    partitions = pa.Table.from_batches([keys])
    rows = present_rows(table, columns, partitions)
    assert rows is not None  # noqa: S101 - there are keys
    wanted, found = groups_of_both(partitions, rows.select(columns.partition))
    last = np.full(len(keys), until)
    lifetimes = Lifetimes.of_column(flat(rows.column(names.EXPIRES)))
    np.maximum.at(last, found, lifetimes.last)
    return [it if it > until else None for it in last[wanted].tolist()]
