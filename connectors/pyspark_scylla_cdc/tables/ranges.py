"""Tests whether a row lies in a range of clustering keys, in the server's order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cdc_reader.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructField

_AS_IN_SPARK = frozenset(
    "ascii bigint blob boolean date double float int smallint text time timestamp tinyint".split()
)
"""CQL types whose values have the same order in Spark as in the server."""
_EVEN_DIGITS = (20, 22, 25, 27, 29, 31, 33, 35)
"""Positions of the last eight bytes of a time UUID in its text, counted from 1."""


def column(name: str) -> Column:
    """Return the column with exactly this name, which may contain any characters."""
    from pyspark.sql import functions as sf

    return sf.col("`" + name.replace("`", "``") + "`")


def within(bounds: Column, fields: Sequence[StructField]) -> Column:
    """Return a column that is true for rows in the range.

    `fields` are the clustering columns. Raises SchemaError for a column that Spark orders
    differently from the server.
    """
    after = _beyond(fields, bounds["start"], bounds["start_inclusive"], is_start=True)
    before = _beyond(fields, bounds["end"], bounds["end_inclusive"], is_start=False)
    return after & before


def _beyond(
    fields: Sequence[StructField], bound: Column, inclusive: Column, *, is_start: bool
) -> Column:
    """Return a column that is true for rows that satisfy one bound of a range.

    The bound may lack values for the last `fields`.
    """
    from pyspark.sql import functions as sf

    if not fields:
        return inclusive
    first, rest = fields[0], fields[1:]
    limit, value = _comparable(bound[first.name], first), _comparable(column(first.name), first)
    ascends = (first.metadata.get("cql.order") != "desc") == is_start
    inside = value > limit if ascends else value < limit
    further = (value == limit) & _beyond(rest, bound, inclusive, is_start=is_start)
    return sf.when(limit.isNull(), inclusive).otherwise(inside | further)


def _comparable(value: Column, field: StructField) -> Column:
    """Convert the value to a form that Spark orders as the server orders the value."""
    kind = field.metadata.get("cql.type", "")
    if kind in _AS_IN_SPARK or field.dataType.typeName() == "decimal":
        return value
    if kind == "timeuuid":
        return _sortable(value)
    raise SchemaError(
        f"ranges of clustering column {field.name}, of CQL type {kind or 'unknown'}, cannot be "
        "applied in Spark, which orders this type differently; for varint and decimal give "
        "decimalType, else read with rangeDeletes 'skip' or 'fail'"
    )


def _sortable(uuid: Column) -> Column:
    """Convert to text that sorts in the server's order of time UUIDs: time, then signed bytes."""
    from pyspark.sql import functions as sf

    time = [sf.substr(uuid, sf.lit(at), sf.lit(size)) for at, size in ((16, 3), (10, 4), (1, 8))]
    low = [
        part
        for at in _EVEN_DIGITS
        for part in (
            sf.translate(
                sf.substr(uuid, sf.lit(at), sf.lit(1)), "0123456789abcdef", "89abcdef01234567"
            ),
            sf.substr(uuid, sf.lit(at + 1), sf.lit(1)),
        )
    ]
    return sf.concat(*time, *low)
