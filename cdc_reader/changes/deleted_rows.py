"""Finds the rows that a delete removes, among rows in Arrow: see `deleted_rows`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader._arrow import Mask, booleans, to_arrow
from cdc_reader.changes.arrays import Indices
from cdc_reader.changes.frames.columns import CHANGE_TYPE, RANGE
from cdc_reader.cql.order import ClusteringOrder
from cdc_reader.cql.schema import Column, TableSchema
from cdc_reader.cql.values import converter

_DELETES = ("delete", "delete_range", "delete_partition")
_FIRST = np.zeros(1, np.int64)
_Rows: TypeAlias = pa.RecordBatch | pa.Table


def deleted_rows(
    table: TableSchema, delete: pa.RecordBatch | pa.Table, rows: pa.RecordBatch | pa.Table
) -> pa.BooleanArray:
    """Return a mask of the `rows` that one delete removes.

    `delete` is one row of format `changes`, as `change_batches` and `follow_change_batches` deliver
    it with ``range_deletes="emit"``. `rows` have the columns of the primary key, in the same form.
    Ranges are compared in the server's clustering order, which differs from Arrow's order for
    UUIDs, addresses, decimal, varint and descending columns.

    Raises ValueError unless `delete` is one delete, and `UnsupportedTableError` for a range of
    vectors, which this version cannot compare.
    """
    kinds = delete.column(CHANGE_TYPE).to_pylist()
    if len(kinds) != 1 or kinds[0] not in _DELETES:
        raise ValueError(f"found {CHANGE_TYPE} {kinds}, expected one of {', '.join(_DELETES)}")
    found = np.ones(rows.num_rows, bool)
    for column in table.partition_key:
        found &= _equal(column, delete, rows)
    if table.clustering and kinds[0] != "delete_partition":
        found &= booleans(_cells(table.clustering[0], rows).is_valid())  # static rows stay
        places = np.flatnonzero(found)  # only the rows of the partition become Python objects
        keys = _mappings(table.clustering, rows, places)
        found[places] = [*map(_test(table, delete), keys)]
    return to_arrow(found)


def _equal(column: Column, delete: _Rows, rows: _Rows) -> Mask:
    """Return a mask of the rows in which a column equals the delete's."""
    cells, wanted = _cells(column, rows), _cells(column, delete)
    if not pa.types.is_nested(cells.type):
        return booleans(pc.equal(cells, wanted[0]))
    convert = converter(column.type)
    [value] = convert(wanted)
    return np.array([cell == value for cell in convert(cells)], bool)


def _test(table: TableSchema, delete: _Rows) -> Callable[[Mapping[str, Any]], bool]:
    """Return a function that tells whether a delete in a partition covers a clustering key."""
    order, columns = ClusteringOrder(table), table.clustering
    if delete.column(CHANGE_TYPE)[0].as_py() == "delete":
        [key] = _mappings(columns, delete, _FIRST)
        return order.between(key, key, start_inclusive=True, end_inclusive=True)
    bounds = _flat(delete.column(RANGE))
    return order.between(
        _bound(columns, bounds.field("start")),
        _bound(columns, bounds.field("end")),
        start_inclusive=bounds.field("start_inclusive")[0].as_py(),
        end_inclusive=bounds.field("end_inclusive")[0].as_py(),
    )


def _bound(columns: Sequence[Column], bound: pa.StructArray) -> Mapping[str, Any]:
    """Return the values that a bound has, by column."""
    [values] = _mappings(columns, pa.RecordBatch.from_struct_array(bound), _FIRST)
    return {name: value for name, value in values.items() if value is not None}


def _mappings(columns: Sequence[Column], rows: _Rows, places: Indices) -> list[Mapping[str, Any]]:
    """Return the columns of the rows at `places`, as values that `cql.values` describes."""
    taken = to_arrow(places)
    cells = [converter(column.type)(_cells(column, rows).take(taken)) for column in columns]
    names = [column.name for column in columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*cells, strict=True)]


def _cells(column: Column, rows: _Rows) -> pa.Array:
    return _flat(rows.column(column.name))


def _flat(cells: pa.Array | pa.ChunkedArray) -> pa.Array:
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
