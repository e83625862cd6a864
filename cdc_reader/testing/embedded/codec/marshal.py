"""The error for values that cannot be serialised, and the server's type names in its messages."""

from __future__ import annotations

from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
)


class MarshalError(ValueError):
    """A value that is not of its type; the message is the server's, with its prefix."""

    def __init__(self, message: str) -> None:
        super().__init__(f"marshaling error: {message}")


MARSHAL_PACKAGE = "org.apache.cassandra.db.marshal."
NATIVE_CLASSES = {
    "ascii": "AsciiType",
    "bigint": "LongType",
    "blob": "BytesType",
    "boolean": "BooleanType",
    "counter": "CounterColumnType",
    "date": "SimpleDateType",
    "decimal": "DecimalType",
    "double": "DoubleType",
    "duration": "DurationType",
    "float": "FloatType",
    "inet": "InetAddressType",
    "int": "Int32Type",
    "smallint": "ShortType",
    "text": "UTF8Type",
    "time": "TimeType",
    "timestamp": "TimestampType",
    "timeuuid": "TimeUUIDType",
    "tinyint": "ByteType",
    "uuid": "UUIDType",
    "varint": "IntegerType",
}


_COMPOSITE: dict[type, str] = {
    ListType: "ListType",
    MapType: "MapType",
    SetType: "SetType",
    TupleType: "TupleType",
    UserType: "UserType",
    VectorType: "VectorType",
}


def class_name(cql_type: CqlType) -> str:
    """Return the type's marshal class, as in ``org.apache.cassandra.db.marshal.Int32Type``."""
    native = isinstance(cql_type, Native)
    return MARSHAL_PACKAGE + (
        NATIVE_CLASSES[str(cql_type)] if native else _COMPOSITE[type(cql_type)]
    )
