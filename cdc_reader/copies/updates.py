"""Updates of a copy's rows, as one column for each value and one flag for each column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader.changes.frames import columns as names
from cdc_reader.copies.columns import CopyColumns


def mergeable(columns: CopyColumns, updates: pa.Table) -> pa.Table:
    """Return what `row_updates` has found with the columns that `Merge` expects."""
    sets = updates.column(names.MODIFIED)
    found = {name: updates.column(name) for name in updates.schema.names}
    found[columns.marker] = found.pop(names.INSERTED)
    found[columns.kind] = found.pop(names.CHANGE_TYPE)
    for name, flag in columns.flags.items():
        found[flag] = _contains(sets, name)
    return pa.table(found).select([*columns.row, columns.kind, *columns.flags.values()])


def _contains(lists: pa.ChunkedArray, name: str) -> pa.Array:
    """Return for each list of names whether it contains the name; false for null."""
    found = lists.combine_chunks()
    rows = pc.filter(pc.list_parent_indices(found), pc.equal(pc.list_flatten(found), name))
    return pc.is_in(pa.array(range(len(found)), pa.int64()), rows.cast(pa.int64()))
