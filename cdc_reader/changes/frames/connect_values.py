"""Values in the form in which Kafka Connect's JSON converter writes them.

===================  ==================================================
CQL                  Arrow
===================  ==================================================
date                 int32: days since 1970
timestamp            int64: milliseconds since 1970
duration             string, such as ``1mo2d3h4m5s``
map                  list of structs with the fields ``key``, ``value``
tuple                struct<field_0, field_1, …>
===================  ==================================================

`ValueTypes` converts all other values.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve

from cdc_reader.changes.frames.value_types import ValueTypes
from cdc_reader.cql.types import CqlType, MapType, Native, TupleType, UserType, children
from cdc_reader.decoding.arrow_type import ARROW, fields_of

_NATIVE = {"date": pa.int32(), "timestamp": pa.int64(), "duration": pa.string()}
_UNITS = (
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
)
"""The units of a duration that are shorter than a day, with their lengths in nanoseconds."""


def connect_type(cql_type: CqlType, types: ValueTypes) -> pa.DataType:
    """Return the type of the converted values of a column."""
    transform = evolve(
        ARROW,
        native=lambda native: _NATIVE.get(native.name) or types.of(native),
        mapping=lambda _, key, value: pa.list_(pa.struct([("key", key), ("value", value)])),
        struct=_struct,
    )
    return transform(cql_type)


def connect_values(array: pa.Array, cql_type: CqlType, types: ValueTypes) -> pa.Array:
    """Convert the values of a column; return the array itself if its type is unchanged."""
    if (kind := connect_type(cql_type, types)) == array.type:
        return array
    if isinstance(cql_type, Native):
        return _natives(array, cql_type.name)
    nulls = array.is_null()
    if isinstance(cql_type, TupleType | UserType):
        cells = zip(array.flatten(), children(cql_type), strict=True)
        parts = [connect_values(cell, part, types) for cell, part in cells]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)
    offsets = pc.add(array.offsets, 0)  # a copy: Arrow does not accept a mask with a slice
    if isinstance(cql_type, MapType):
        entries = [
            connect_values(array.keys, cql_type.key, types),
            connect_values(array.items, cql_type.value, types),
        ]
        elements = pa.StructArray.from_arrays(entries, fields=list(kind.value_type))
    else:
        elements = connect_values(array.values, cql_type.element, types)
    return pa.ListArray.from_arrays(offsets, elements, type=kind, mask=nulls)


def _struct(cql_type: TupleType | UserType, parts: Sequence[pa.DataType]) -> pa.DataType:
    names = [name for name, _ in fields_of(cql_type)]
    if isinstance(cql_type, TupleType):
        names = [f"field_{number}" for number in range(len(parts))]
    return pa.struct(list(zip(names, parts, strict=True)))


def _natives(array: pa.Array, name: str) -> pa.Array:
    match name:
        case "date":
            return array.cast(pa.int32())
        case "timestamp":
            return array.cast(pa.int64())
        case _:
            texts = [None if value is None else _duration(**value) for value in array.to_pylist()]
            return pa.array(texts, pa.string())


def _duration(months: int, days: int, nanoseconds: int) -> str:
    """Return a duration as the drivers print it. All its parts must have the same sign."""
    sign = "-" if min(months, days, nanoseconds) < 0 else ""
    years, months = divmod(abs(months), 12)
    counts = [(years, "y"), (months, "mo"), (abs(days), "d")]
    left = abs(nanoseconds)
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        counts.append((count, unit))
    return sign + "".join(f"{count}{unit}" for count, unit in counts if count)
