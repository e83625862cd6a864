"""Cells of the log as cells of the base table: the same value in the base column's type."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader.cql_type import ListType, UserType, is_multi_cell
from cdc_reader.schema import Column


def base_values(logged: pa.Array, column: Column) -> pa.Array:
    """What a ``SELECT`` on the base table would show for these cells of the log.

    The log has a list as a map from time UUIDs, whose order is the list's. Of a collection or
    a UDT that is not frozen the base table knows no empty value: it is null.
    """
    if not is_multi_cell(column.type):
        return logged
    values = _elements(logged) if isinstance(column.type, ListType) else logged
    return _null_where(is_empty(logged, column), values)


def is_empty(logged: pa.Array, column: Column) -> pa.Array:
    """Where a cell of a collection or UDT that is not frozen holds no element."""
    if isinstance(column.type, UserType):
        return _all_null(logged)
    return pc.equal(_lengths(logged), 0)


def _elements(logged: pa.MapArray) -> pa.ListArray:
    offsets = pc.add(logged.offsets, 0)  # a copy: Arrow takes no mask beside a slice
    kind = pa.list_(pa.field("element", logged.type.item_type))
    return pa.ListArray.from_arrays(offsets, logged.items, type=kind, mask=logged.is_null())


def _lengths(collection: pa.Array) -> pa.Array:
    if not pa.types.is_map(collection.type):
        return pc.list_value_length(collection)
    offsets = collection.offsets
    return pc.subtract(offsets[1:], offsets[:-1])


def _all_null(struct: pa.StructArray) -> pa.Array:
    nulls = pa.array([True] * len(struct), pa.bool_())
    for field in struct.flatten():
        nulls = pc.and_(nulls, field.is_null())
    return nulls


def _null_where(mask: pa.Array, values: pa.Array) -> pa.Array:
    if not pc.any(mask).as_py():
        return values
    return pc.if_else(mask, pa.scalar(None, values.type), values)
