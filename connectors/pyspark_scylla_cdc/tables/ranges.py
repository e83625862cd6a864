"""Tests whether a row lies in a range of clustering keys, in the server's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField

from cdc_reader.copies.columns import quoted

_AS_IN_SPARK = frozenset(
    "ascii bigint blob boolean date double float int smallint text time timestamp tinyint".split()
)
"""CQL types whose values have the same order in Spark as in the server."""
_EVEN_DIGITS = (20, 22, 25, 27, 29, 31, 33, 35)
"""Positions of the last eight bytes of a time UUID in its text, counted from 1."""
_TIME = ((16, 3), (10, 4), (1, 8))
"""Positions and lengths of the parts of a UUID's time in its text, most significant first."""
_VERSION = 15
"""Position of a UUID's version in its text."""
_NUMBERS = ("decimal", "varint")


def column(name: str) -> Column:
    """Return the column with exactly this name, which may contain any characters."""
    return sf.col(quoted(name))


def within(bounds: Column, fields: Sequence[StructField]) -> Column:
    """Return a column that is true for rows in the range.

    `fields` are the clustering columns. A range with a bound on a column that Spark orders
    differently from the server ends the query with an error.
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
    if not fields:
        return inclusive
    first, rest = fields[0], fields[1:]
    limit = bound[first.name]
    if not _is_comparable(first):
        return sf.when(limit.isNull(), inclusive).otherwise(_refused(first))
    end, value = _comparable(limit, first), _comparable(column(first.name), first)
    ascends = (first.metadata.get("cql.order") != "desc") == is_start
    inside = value > end if ascends else value < end
    further = (value == end) & _beyond(rest, bound, inclusive, is_start=is_start)
    return sf.when(limit.isNull(), inclusive).otherwise(inside | further)


def _is_comparable(field: StructField) -> bool:
    kind = field.metadata.get("cql.type", "")
    is_number = kind in _NUMBERS and field.dataType.typeName() == "decimal"
    return is_number or kind in _AS_IN_SPARK or kind in _SORTABLE


def _comparable(value: Column, field: StructField) -> Column:
    """Convert the value to a form that Spark orders as the server orders the value."""
    convert = _SORTABLE.get(field.metadata.get("cql.type", ""))
    return value if convert is None else convert(value)


def _refused(field: StructField) -> Column:
    """Return a column whose evaluation ends the query with an error."""
    kind = field.metadata.get("cql.type", "")
    remedy = (
        "set decimalType, and begin again with a new snapshot"
        if kind in _NUMBERS
        else "begin again with a new snapshot, and delete rows by whole keys or partitions"
    )
    text = (
        f"found a range delete with a bound on clustering column {field.name}, of CQL type "
        f"{kind or 'unknown'}, which Spark orders differently from the server: {remedy}; a copy "
        "begins again when its target and its checkpoint are deleted"
    )
    return sf.raise_error(sf.lit(text)).cast("boolean")


def _by_time(uuid: Column) -> Column:
    """Convert to text that sorts in the server's order of time UUIDs: time, then signed bytes."""
    low = [
        part
        for at in _EVEN_DIGITS
        for part in (
            sf.translate(_digits(uuid, at, 1), "0123456789abcdef", "89abcdef01234567"),
            _digits(uuid, at + 1, 1),
        )
    ]
    return sf.concat(_time(uuid), *low)


def _by_version(uuid: Column) -> Column:
    """Convert to text that sorts in the server's order of UUIDs.

    UUIDs are ordered by version; then those of version 1 by time and bytes, and others by bytes.
    """
    version = _digits(uuid, _VERSION, 1)
    by_time = sf.concat(_time(uuid), _digits(uuid, _EVEN_DIGITS[0], 17))
    return sf.concat(version, sf.when(version == "1", by_time).otherwise(uuid))


def _time(uuid: Column) -> Column:
    return sf.concat(*(_digits(uuid, at, size) for at, size in _TIME))


def _digits(uuid: Column, at: int, size: int) -> Column:
    """Return `size` characters of a UUID's text from position `at`, counted from 1."""
    return sf.substr(uuid, sf.lit(at), sf.lit(size))


_SORTABLE: Mapping[str, Callable[[Column], Column]] = {"timeuuid": _by_time, "uuid": _by_version}
"""Conversions of values to a form that Spark orders as the server does, for CQL types."""
