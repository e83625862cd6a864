"""The error for values that cannot be serialized, and the type names used in messages."""

from __future__ import annotations

from cdc_reader.cql.types import CqlType


class MarshalError(ValueError):
    """A value does not have the required type; the message is ScyllaDB's, with its prefix."""

    def __init__(self, message: str) -> None:
        super().__init__(f"marshaling error: {message}")


MARSHAL_PACKAGE = "org.apache.cassandra.db.marshal."
NATIVE_CLASSES = {
    "ascii": "AsciiType", "bigint": "LongType", "blob": "BytesType", "boolean": "BooleanType",
    "counter": "CounterColumnType", "date": "SimpleDateType", "decimal": "DecimalType",
    "double": "DoubleType", "duration": "DurationType", "float": "FloatType",
    "inet": "InetAddressType", "int": "Int32Type", "smallint": "ShortType", "text": "UTF8Type",
    "time": "TimeType", "timestamp": "TimestampType", "timeuuid": "TimeUUIDType",
    "tinyint": "ByteType", "uuid": "UUIDType", "varint": "IntegerType",
}  # fmt: skip


def class_name(cql_type: CqlType) -> str:
    """Return the type's marshal class, as in ``org.apache.cassandra.db.marshal.Int32Type``."""
    known = NATIVE_CLASSES.get(str(cql_type))
    return MARSHAL_PACKAGE + (known or type(cql_type).__name__)
