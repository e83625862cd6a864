"""Converts values of this library to values that the driver binds, and to CQL's bytes.

The bytes of a partition key give its token under the server's default partitioner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from attrs import evolve
from cassandra import cqltypes
from cassandra.metadata import Murmur3Token
from cassandra.util import Date, OrderedMap, Time
from cassandra.util import Duration as DriverDuration

from cdc_reader.cluster.driver import DECIMAL
from cdc_reader.cql.order import sort_key
from cdc_reader.cql.schema import Column, TableSchema
from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    Transform,
    TupleType,
    UserType,
    VectorType,
)
from cdc_reader.cql.values import FrozenDict, converter
from cdc_reader.decoding.cells import build
from cdc_reader.errors import ConfigurationError
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN

Convert = Callable[[Any], Any]


def _unchanged(value: Any) -> Any:
    return value


_NATIVE: dict[str, Convert] = {
    **dict.fromkeys(("ascii", "blob", "boolean", "text"), _unchanged),
    **dict.fromkeys(("bigint", "counter", "int", "smallint", "tinyint", "varint"), _unchanged),
    **dict.fromkeys(("decimal", "double", "float", "timeuuid", "uuid"), _unchanged),
    "date": Date,
    "duration": lambda value: DriverDuration(value.months, value.days, value.nanoseconds),
    "inet": str,
    "time": Time,
    "timestamp": _unchanged,
}

PROTOCOL_VERSION = 4

_SERIALISERS = {
    "ascii": cqltypes.AsciiType,
    "bigint": cqltypes.LongType,
    "blob": cqltypes.BytesType,
    "boolean": cqltypes.BooleanType,
    "counter": cqltypes.CounterColumnType,
    "date": cqltypes.SimpleDateType,
    "decimal": DECIMAL,
    "double": cqltypes.DoubleType,
    "duration": cqltypes.DurationType,
    "float": cqltypes.FloatType,
    "inet": cqltypes.InetAddressType,
    "int": cqltypes.Int32Type,
    "smallint": cqltypes.ShortType,
    "text": cqltypes.UTF8Type,
    "time": cqltypes.TimeType,
    "timestamp": cqltypes.DateType,
    "timeuuid": cqltypes.TimeUUIDType,
    "tinyint": cqltypes.ByteType,
    "uuid": cqltypes.UUIDType,
    "varint": cqltypes.IntegerType,
}


@cache
def to_driver(cql_type: CqlType) -> Convert:
    """Return a function that converts values of `cdc_reader.cql.values` to the driver's values.

    Collections become tuples, which are hashable. A missing field of a user-defined type is null.
    """
    return _TO_DRIVER(cql_type)


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _native(convert: Convert) -> Convert:
    return convert if convert is _unchanged else _nullable(convert)


def _sequence(_: CqlType, element: Convert) -> Convert:
    return _nullable(lambda value: tuple(map(element, value)))


def _map(_: CqlType, key: Convert, item: Convert) -> Convert:
    return _nullable(lambda value: FrozenDict((key(k), item(v)) for k, v in value.items()))


def _struct(cql_type: TupleType | UserType, parts: Sequence[Convert]) -> Convert:
    if isinstance(cql_type, TupleType):
        return _nullable(
            lambda value: tuple(p(item) for p, item in zip(parts, value, strict=False))
        )
    fields = [(name, part) for (name, _), part in zip(cql_type.fields, parts, strict=True)]
    return _nullable(lambda value: tuple(part(value.get(name)) for name, part in fields))


def _in_order(cql_type: ListType | SetType | VectorType, element: Convert) -> Convert:
    if not isinstance(cql_type, SetType):
        return _sequence(cql_type, element)
    key = sort_key(cql_type.element)
    return _nullable(lambda value: tuple(map(element, sorted(value, key=key))))


def _map_in_order(cql_type: MapType, key: Convert, item: Convert) -> Convert:
    place = sort_key(cql_type.key)

    def convert(value: Any) -> Any:
        entries = sorted(value.items(), key=lambda entry: place(entry[0]))
        return OrderedMap((key(k), item(v)) for k, v in entries)

    return _nullable(convert)


_TO_DRIVER: Transform[Convert] = Transform(
    native=lambda cql_type: _native(_NATIVE[cql_type.name]),
    sequence=_sequence,
    mapping=_map,
    struct=_struct,
)


_TO_DRIVER_IN_ORDER = evolve(_TO_DRIVER, sequence=_in_order, mapping=_map_in_order)
"""As `_TO_DRIVER`, but sets and maps are in the server's order, by which it hashes keys."""


def serialise(cql_type: CqlType, value: object) -> bytes:
    """Serialize the value to CQL's bytes; raise ValueError, naming the type, if it does not fit."""
    try:
        raw: bytes = driver_type(cql_type).to_binary(value, PROTOCOL_VERSION)
    except Exception as error:  # the driver's types raise errors of any class
        raise ValueError(f"{value!r} is not a valid {cql_type} ({_one_line(error)})") from error
    return raw


@cache
def driver_type(cql_type: CqlType) -> Any:
    """Return the driver's class for a type."""
    return _DRIVER_TYPE(cql_type)


def _sequence_type(cql_type: ListType | SetType | VectorType, element: Any) -> Any:
    if isinstance(cql_type, VectorType):
        return cqltypes.VectorType.apply_parameters([element, cql_type.dimension], None)
    kind = cqltypes.ListType if isinstance(cql_type, ListType) else cqltypes.SetType
    return kind.apply_parameters([element])


def _struct_type(cql_type: TupleType | UserType, parts: Sequence[Any]) -> Any:
    if isinstance(cql_type, TupleType):
        return cqltypes.TupleType.apply_parameters(parts)
    names = tuple(name for name, _ in cql_type.fields)
    return cqltypes.UserType.make_udt_class(cql_type.keyspace, cql_type.name, names, tuple(parts))


_DRIVER_TYPE: Transform[Any] = Transform(
    native=lambda cql_type: _SERIALISERS[cql_type.name],
    sequence=_sequence_type,
    mapping=lambda _, key, value: cqltypes.MapType.apply_parameters([key, value]),
    struct=_struct_type,
)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def token_of(table: TableSchema, key: Mapping[str, object]) -> int:
    """Return the token of a base table's partition; `key` maps columns to values.

    Raises ConfigurationError if `key` has other columns, or if a value has the wrong type.
    """
    columns = table.partition_key
    names = [column.name for column in columns]
    if sorted(key) != sorted(names):
        remedy = f"give the partition key of {table.name}: {', '.join(names)}"
        raise ConfigurationError("key", ", ".join(key), remedy)
    return murmur3(serialised_key([_cell(column, key[column.name]) for column in columns]))


def murmur3(key: bytes) -> int:
    """Return the token of a serialized key; never the smallest token, which starts the ring."""
    token: int = Murmur3Token.hash_fn(key)
    return MAX_TOKEN if token == MIN_TOKEN else token


def serialised_key(cells: list[bytes]) -> bytes:
    """Serialize the cells of a partition key.

    A single cell is serialized as it is. Each of several cells becomes a two-byte length, the cell
    and a zero byte.
    """
    if len(cells) == 1:
        return cells[0]
    return b"".join(len(cell).to_bytes(2, "big") + cell + b"\0" for cell in cells)


def _cell(column: Column, value: object) -> bytes:
    try:
        raw = serialise(column.type, value)
        if isinstance(column.type, Native):
            return raw
        [own] = converter(column.type)(build(column.type, [raw]))
        return serialise(column.type, _TO_DRIVER_IN_ORDER(column.type)(own))
    except ValueError:
        remedy = f"give a value of type {column.type}"
        raise ConfigurationError(f"key column {column.name}", value, remedy) from None
