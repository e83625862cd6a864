"""Finds the rows in which a table and its copy differ, among rows that are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader._arrow import Mask, booleans, indices, to_arrow, valid
from cdc_reader.changes.arrays import (
    NAMES,
    NONE,
    Indices,
    comparable,
    first_of_each,
    names_of,
)
from cdc_reader.changes.folding.events import groups_of
from cdc_reader.changes.hashing import hashes
from cdc_reader.cql.types import CqlType
from cdc_reader.cql.values import FrozenDict, converter
from cdc_reader.replication.comparison import Kind
from cdc_reader.replication.copy_columns import CopyColumns

KIND, COLUMNS = "kind", "columns"
"""Columns of rows that differ: the place of the kind among `KINDS`, and the columns that differ."""
KINDS = list(Kind)


def difference_schema(columns: CopyColumns) -> pa.Schema:
    """Return the schema of rows that differ: their key, `KIND` and `COLUMNS`."""
    return columns.key_schema.append(pa.field(KIND, pa.int8())).append(pa.field(COLUMNS, NAMES))


def differences(
    table: pa.RecordBatch, copy: pa.RecordBatch, columns: CopyColumns
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that differ, in batches with the schema `difference_schema`.

    A row of the copy with the same key as another one counts as a row that only the copy has.
    """
    ours, theirs = groups((table, copy), [*columns.key])
    count = max(ours.max(initial=NONE), theirs.max(initial=NONE)) + 1
    mine, its = (first_of_each(it, np.ones(len(it), bool), count) for it in (ours, theirs))
    schema = difference_schema(columns)
    yield _alone(table, its[ours] == NONE, Kind.MISSING, schema)
    is_second = np.arange(len(theirs)) != its[theirs]
    yield _alone(copy, (mine[theirs] == NONE) | is_second, Kind.EXTRA, schema)
    both = np.flatnonzero((mine != NONE) & (its != NONE))
    yield _changed(table, copy, (mine[both], its[both]), columns)


def groups(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> list[Indices]:
    """Return, for each batch, the number of each row's group.

    Rows of any batch are in the same group if they have equal cells in the columns `names`. Null
    equals null.
    """
    count = sum(batch.num_rows for batch in batches)
    cells = (pa.concat_arrays([batch.column(name) for batch in batches]) for name in names)
    found = groups_of(cells, count)
    ends = np.cumsum([batch.num_rows for batch in batches])
    return list(np.split(found, ends[:-1]))


def _alone(rows: pa.RecordBatch, mask: Mask, kind: Kind, schema: pa.Schema) -> pa.RecordBatch:
    """Return the keys of the rows in the mask."""
    keys = rows.select(schema.names[:-2]).filter(to_arrow(mask))
    return _with_kind(keys, kind, pa.array([[]] * keys.num_rows, NAMES), schema)


def _changed(
    table: pa.RecordBatch, copy: pa.RecordBatch, at: tuple[Indices, Indices], columns: CopyColumns
) -> pa.RecordBatch:
    """Return the keys of the rows, at the same places of `at`, whose values differ."""
    mine, its = to_arrow(at[0]), to_arrow(at[1])
    marks = np.zeros((len(at[0]), len(columns.values)), bool)
    for place, (own, column) in enumerate(columns.values.items()):
        cells = table.column(own).take(mine), copy.column(own).take(its)
        marks[:, place] = _differ(*cells, column.type)
    rows = np.flatnonzero(marks.any(axis=1))
    names = [column.name for column in columns.values.values()]
    lists = names_of(marks[rows], names, np.ones(len(rows), bool))
    schema = difference_schema(columns)
    keys = table.select(schema.names[:-2]).take(to_arrow(at[0][rows]))
    return _with_kind(keys, Kind.CHANGED, lists, schema)


def _with_kind(
    keys: pa.RecordBatch, kind: Kind, lists: pa.Array, schema: pa.Schema
) -> pa.RecordBatch:
    kinds = to_arrow(np.full(keys.num_rows, KINDS.index(kind), np.int8))
    return pa.RecordBatch.from_arrays([*keys.columns, kinds, lists], schema=schema)


def _differ(one: pa.Array, other: pa.Array, cql_type: CqlType) -> Mask:
    """Return a mask of the rows in which the cells differ.

    NaN equals NaN, 0.0 does not equal -0.0, and the order of a set or a map does not matter.
    """
    if not pa.types.is_nested(one.type):
        same = booleans(pc.equal(comparable(one), comparable(other)))
        differ: Mask = ~same & (valid(one) | valid(other))
        return differ
    found: Mask = hashes(one) != hashes(other)
    rows = np.flatnonzero(found)
    if len(rows):  # as values, because another order has another hash
        convert, taken = converter(cql_type), indices(rows.tolist())
        cells = (map(_ordered, convert(each.take(taken))) for each in (one, other))
        found[rows] = [mine != its for mine, its in zip(*cells, strict=True)]
    return found


def _ordered(value: Any) -> str:
    """Return a text that is the same for the same value, in whatever order its elements are."""
    match value:
        case FrozenDict():
            entries = (f"{_ordered(key)}: {_ordered(each)}" for key, each in value.items())
            return f"{{{', '.join(sorted(entries))}}}"
        case frozenset():
            return f"{{{', '.join(sorted(map(_ordered, value)))}}}"
        case tuple():
            return f"({', '.join(map(_ordered, value))})"
        case _:
            return repr(value)
