"""Tells which differences between a table and its copy come from changes after the copy."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
from attrs import frozen

from cdc_reader._arrow import Mask, cells, to_arrow, valid
from cdc_reader.changes.arrays import NAMES, NONE, Indices, any_of_each, at_rows
from cdc_reader.cql.schema import OPERATION, Operation
from cdc_reader.replication.comparison import Kind
from cdc_reader.replication.copy_columns import CopyColumns
from cdc_reader.replication.matching import COLUMNS, KIND, KINDS, groups

_REACH = "reach"
_ROW, _STATIC, _PARTITION = range(3)
"""What a change can alter: a row, the static columns, or any row of the partition."""
_IMAGES = (Operation.PREIMAGE, Operation.POSTIMAGE)
_OF_ROWS = (
    Operation.UPDATE,
    Operation.INSERT,
    Operation.ROW_DELETE,
    Operation.SERVER_ROW_DELETE,
)


def change_schema(columns: CopyColumns) -> pa.Schema:
    """Return the schema of changes: the key, and what they can alter."""
    return columns.key_schema.append(pa.field(_REACH, pa.int8()))


def changed_keys(rows: pa.RecordBatch, columns: CopyColumns) -> pa.RecordBatch:
    """Return the changes that rows of the log describe, without its images.

    A delete of a range counts as a change of the whole partition.
    """
    operations = cells(rows.column(OPERATION))
    is_change = ~np.isin(operations, _IMAGES)
    kept = rows.filter(to_arrow(is_change))
    keys, operations = columns.of_log(kept), operations[is_change]
    reach = np.where(np.isin(operations, _OF_ROWS), _ROW, _PARTITION).astype(np.int8)
    if columns.clustering:
        no_row = ~valid(keys.column(columns.clustering[0]))
        reach[(reach == _ROW) & no_row] = _STATIC
    return pa.RecordBatch.from_arrays(
        [*keys.columns, to_arrow(reach)], schema=change_schema(columns)
    )


@frozen
class Explained:
    """Rows that differ, and a mask of those that differ because of later changes."""

    rows: pa.RecordBatch
    later: Mask


def explained(
    rows: pa.RecordBatch, changes: pa.RecordBatch, columns: CopyColumns, statics: Collection[str]
) -> Explained:
    """Find out which rows that differ have been changed since the copy.

    A change of `statics`, the static columns, explains these columns only.
    """
    reach = cells(changes.column(_REACH))
    in_partition = _Changes(groups((rows, changes), columns.partition), reach)
    of_row = _Changes(groups((rows, changes), [*columns.key]), reach)
    later = in_partition.have(_PARTITION) | of_row.have(_ROW)
    if columns.clustering:  # a partition without rows has one while it has static columns
        no_row = ~valid(rows.column(columns.clustering[0]))
        later |= no_row & (in_partition.have(_ROW) | in_partition.have(_STATIC))
    is_changed = cells(rows.column(KIND)) == KINDS.index(Kind.CHANGED)
    known = np.flatnonzero(is_changed & ~later & in_partition.have(_STATIC))
    lists = rows.column(COLUMNS).to_pylist() if len(known) else []
    for row in known:
        lists[row] = [name for name in lists[row] if name not in statics]
        later[row] = not lists[row]
    if len(known):
        place = rows.schema.get_field_index(COLUMNS)
        rows = rows.set_column(place, COLUMNS, pa.array(lists, NAMES))
    return Explained(rows, later)


@frozen(eq=False)
class _Changes:
    """The groups of rows and of changes, and what the changes can alter."""

    groups: Sequence[Indices]
    reach: np.ndarray[tuple[int], np.dtype[np.int8]]

    def have(self, reach: int) -> Mask:
        """Return a mask of the rows in whose group there is a change with this reach."""
        rows, changes = self.groups
        count = max(rows.max(initial=NONE), changes.max(initial=NONE)) + 1
        return at_rows(any_of_each(changes, self.reach == reach, count), rows)
