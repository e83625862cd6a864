"""Encodes types as [option], and as the class names used in errors and vectors."""

from __future__ import annotations

import functools

from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
    children,
)
from cdc_reader.testing.embedded.codec.marshal import MARSHAL_PACKAGE, NATIVE_CLASSES
from cdc_reader.testing.embedded.protocol.body import short, string

CUSTOM, USER, TUPLE = 0x00, 0x30, 0x31
_COLLECTION_IDS: dict[type, int] = {ListType: 0x20, MapType: 0x21, SetType: 0x22}

NATIVE_IDS = {
    "ascii": 0x01, "bigint": 0x02, "blob": 0x03, "boolean": 0x04, "counter": 0x05,
    "decimal": 0x06, "double": 0x07, "float": 0x08, "int": 0x09, "timestamp": 0x0B,
    "uuid": 0x0C, "text": 0x0D, "varint": 0x0E, "timeuuid": 0x0F, "inet": 0x10,
    "date": 0x11, "time": 0x12, "smallint": 0x13, "tinyint": 0x14, "duration": 0x15,
}  # fmt: skip


@functools.cache
def encode_type(cql_type: CqlType) -> bytes:
    """Encode a type as an [option]; a vector is a custom type."""
    match cql_type:
        case Native(name):
            return short(NATIVE_IDS[name])
        case UserType(keyspace, name, fields):
            parts = [string(field) + encode_type(field_type) for field, field_type in fields]
            head = short(USER) + string(keyspace) + string(name) + short(len(parts))
            return head + b"".join(parts)
        case VectorType():
            return short(CUSTOM) + string(class_name(cql_type))
        case TupleType(elements):
            return short(TUPLE) + short(len(elements)) + b"".join(map(encode_type, elements))
        case _:
            parameters = b"".join(map(encode_type, children(cql_type)))
            return short(_COLLECTION_IDS[type(cql_type)]) + parameters


def class_name(cql_type: CqlType) -> str:
    """Return the name of Cassandra's Java class for a type."""
    match cql_type:
        case Native(name):
            return MARSHAL_PACKAGE + NATIVE_CLASSES[name]
        case UserType(keyspace, name, fields):
            parts = [f"{f.encode().hex()}:{class_name(t)}" for f, t in fields]
            return f"{MARSHAL_PACKAGE}UserType({','.join((keyspace, name.encode().hex(), *parts))})"
        case VectorType(element, dimension):
            return f"{MARSHAL_PACKAGE}VectorType({class_name(element)}, {dimension})"
        case _:
            parameters = ",".join(map(class_name, children(cql_type)))
            return f"{MARSHAL_PACKAGE}{type(cql_type).__name__}({parameters})"
