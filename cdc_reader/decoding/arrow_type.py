"""The Arrow type that each CQL type decodes to, without loss.

=====================  ===========================================================
CQL                    Arrow
=====================  ===========================================================
ascii, text            string
blob                   binary
boolean                bool
tinyint … bigint       int8 … int64; counter is int64
float, double          float32, float64
decimal, varint        string: the exact digits, because CQL bounds neither type
timestamp              timestamp[ms, UTC]
date                   date32
time                   int64, ns since midnight
duration               struct<months: int32, days: int32, nanoseconds: int64>
uuid, timeuuid         string, in canonical form
inet                   string
list, set, vector      list, in wire order
map                    map
tuple                  struct<_1, _2, …>
user-defined type      struct by field names
=====================  ===========================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import CqlType, Transform, TupleType, UserType

DURATION = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])

NATIVE: dict[str, pa.DataType] = {
    "ascii": pa.string(),
    "bigint": pa.int64(),
    "blob": pa.binary(),
    "boolean": pa.bool_(),
    "counter": pa.int64(),
    "date": pa.date32(),
    "decimal": pa.string(),
    "double": pa.float64(),
    "duration": DURATION,
    "float": pa.float32(),
    "inet": pa.string(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "text": pa.string(),
    "time": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "timeuuid": pa.string(),
    "tinyint": pa.int8(),
    "uuid": pa.string(),
    "varint": pa.string(),
}


def arrow_type(cql_type: CqlType) -> pa.DataType:
    """Return the Arrow type of a column of `cql_type`, as listed in this module's docstring."""
    return ARROW(cql_type)


def _struct(cql_type: TupleType | UserType, parts: Sequence[pa.DataType]) -> pa.DataType:
    names = (name for name, _ in fields_of(cql_type))
    return pa.struct(list(zip(names, parts, strict=True)))


ARROW: Transform[pa.DataType] = Transform(
    native=lambda cql_type: NATIVE[cql_type.name],
    sequence=lambda _, element: pa.list_(pa.field("element", element)),
    mapping=lambda _, key, value: pa.map_(
        pa.field("key", key, nullable=False), pa.field("value", value)
    ),
    struct=_struct,
)
"""The transform behind `arrow_type`; callers may replace its native types."""


def fields_of(cql_type: TupleType | UserType) -> tuple[tuple[str, CqlType], ...]:
    """Return the fields of a UDT or a tuple; tuple fields are named ``_1``, ``_2`` and so on."""
    if isinstance(cql_type, UserType):
        return cql_type.fields
    return tuple((f"_{number}", part) for number, part in enumerate(cql_type.elements, 1))


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the schema of a RecordBatch of `columns`; every field is nullable."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])
