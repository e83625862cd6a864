"""Serializes JSON values as INSERT JSON does for each type.

Errors are ScyllaDB's: marshaling errors, or JSON errors where ScyllaDB reads a string without
checking the kind of value.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from cdc_reader.cql.types import (
    Collection,
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
)
from cdc_reader.testing.embedded.codec import constant
from cdc_reader.testing.embedded.codec.json_text import JsonError, read_json, write_json
from cdc_reader.testing.embedded.codec.marshal import MarshalError
from cdc_reader.testing.embedded.codec.order import join_cells, sort_key
from cdc_reader.testing.embedded.codec.validation import (
    list_value,
    map_value,
    set_value,
    vector_value,
)

_STRINGS = {
    "timeuuid": "timeuuid_type",
    "date": "simple_date_type",
    "time": "time_type",
    "uuid": "uuid_type",
    "inet": "inet_addr_type",
    "duration": "duration_type",
}
_KEYS_AS_THEY_ARE = ("text", "ascii", "blob")


def from_json(value: Any, cql_type: CqlType) -> bytes:
    """Serialize the value; raise MarshalError or JsonError if it is not valid for the type."""
    match cql_type:
        case Native(name):
            return _READERS.get(name, _other)(value, cql_type)
        case ListType() | SetType() | MapType():
            return _collection(value, cql_type)
        case TupleType(elements):
            return _tuple(value, elements)
        case UserType():
            return _user_type(value, cql_type)
        case VectorType(element, dimension):
            return _vector(value, element, dimension)


def _collection(value: Any, cql_type: Collection) -> bytes:
    match cql_type:
        case ListType(element):
            return list_value([from_json(each, element) for each in _array(value, "list_type")])
        case SetType(element):
            cells = [from_json(each, element) for each in _array(value, "set_type")]
            return set_value(cells, sort_key(element))
        case MapType(key, element):
            return _map(value, key, element)


def _array(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise MarshalError(f"{what} must be represented as JSON Array")
    return value


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MarshalError(f"{what} must be represented as JSON Object")
    return value


def _map(value: Any, key: CqlType, element: CqlType) -> bytes:
    order, entries = sort_key(key), dict[Any, tuple[bytes, bytes]]()
    for name, each in _object(value, "map_type").items():
        found = from_json(_key(name, key), key)
        entries.setdefault(order(found), (found, from_json(each, element)))
    return map_value(entries.values(), order)


def _key(name: str, key: CqlType) -> Any:
    """Return the JSON value of a map key, which is a member name in the JSON text.

    For text, ascii and blob keys, the value is the name itself. For keys of other types, the
    name is parsed as JSON.
    """
    return name if str(key) in _KEYS_AS_THEY_ARE else read_json(name)


def _tuple(value: Any, elements: tuple[CqlType, ...]) -> bytes:
    given = _array(value, "tuple_type")
    if len(given) > len(elements):
        raise MarshalError(f"Too many values ({len(given)}) for tuple with size {len(elements)}")
    return join_cells([from_json(v, t) for v, t in zip(given, elements, strict=False)])


def _user_type(value: Any, cql_type: UserType) -> bytes:
    given = dict(_object(value, "user_type"))
    cells = []
    for name, field in cql_type.fields:
        each = given.pop(name, None)
        cells.append(None if each is None else from_json(each, field))
    if given:
        raise MarshalError(
            f"Extraneous field definition for user type {cql_type.name}: {min(given)}"
        )
    return join_cells(cells)


def _vector(value: Any, element: CqlType, dimension: int) -> bytes:
    given = _array(value, "vector_type")
    if len(given) != dimension:
        raise MarshalError(f"Expected {dimension} values for a vector, found {len(given)}")
    return vector_value([from_json(each, element) for each in given], element)


def _text(value: Any, cql_type: Native) -> bytes:
    if not isinstance(value, str):
        raise JsonError("JSON assert failed on condition 'IsString()'")
    return constant.from_text(value, cql_type)


def _other(value: Any, cql_type: Native) -> bytes:
    """Serialize a value of a type whose JSON form is always a string."""
    return constant.from_text(_string(value, _STRINGS[cql_type.name]), cql_type)


def _string(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise MarshalError(
            f"{what} must be represented as string in JSON, instead got '{write_json(value)}'"
        )
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _integer(value: Any, cql_type: Native) -> bytes:
    if isinstance(value, str):
        return constant.from_text(value, cql_type)
    size = constant.INTEGER_SIZES[cql_type.name]
    return _signed(_whole(value, size), size)


def _whole(value: Any, size: int) -> int:
    """Return the value as an integer; reject a value that does not fit in `size` bytes."""
    if not _is_number(value):
        raise MarshalError(f"Incorrect JSON value for int64 type: {write_json(value)}")
    if fraction := math.fmod(value, 1) if isinstance(value, float) else 0:
        raise MarshalError(
            f"Incorrect JSON floating-point value for int64 type: {write_json(value)} "
            f"(it should not contain fractional part {fraction:.17g})"
        )
    limit = 1 << 8 * size - 1
    if not -limit <= value < limit:
        raise MarshalError(f"Value {value} out of range")
    return int(value)


def _signed(number: int, size: int) -> bytes:
    return number.to_bytes(size, "big", signed=True)


def _counter(value: Any, _: Native) -> bytes:
    return _signed(_whole(value, 8), 8)


def _blob(value: Any, cql_type: Native) -> bytes:
    text = _string(value, "bytes_type")
    if not text.startswith("0x"):
        raise MarshalError("Blob JSON strings must start with 0x")
    return constant.from_text(text, cql_type)


def _boolean(value: Any, _: Native) -> bytes:
    word = value.strip().lower() if isinstance(value, str) else value
    if word in (True, "true") and not _is_number(value):
        return b"\x01"
    if word in (False, "false") and not _is_number(value):
        return b"\x00"
    raise MarshalError(f"Invalid JSON object {write_json(value)}")


def _timestamp(value: Any, cql_type: Native) -> bytes:
    if isinstance(value, str):
        return constant.from_text(value, cql_type)
    if not _is_number(value):
        raise MarshalError("timestamp_type must be represented as string or integer")
    return _signed(_whole(value, 8), 8)


def _floating(value: Any, cql_type: Native) -> bytes:
    if isinstance(value, str):
        return constant.from_text(value, cql_type)
    if not _is_number(value):
        raise MarshalError("JSON value must be represented as double or string")
    if cql_type.name == "double":
        return struct.pack(">d", value)
    return constant.from_text(repr(value), cql_type)


def _numeric(value: Any, cql_type: Native) -> bytes:
    if isinstance(value, str):
        return constant.from_text(value, cql_type)
    if cql_type.name == "decimal" and not _is_number(value):
        raise MarshalError(f"{write_json(value)} must be represented as numeric or string in JSON")
    return constant.from_text(write_json(value), cql_type)


_READERS: dict[str, Callable[[Any, Native], bytes]] = {
    **dict.fromkeys(constant.INTEGER_SIZES, _integer),
    "ascii": _text,
    "blob": _blob,
    "boolean": _boolean,
    "counter": _counter,
    "decimal": _numeric,
    "double": _floating,
    "float": _floating,
    "text": _text,
    "timestamp": _timestamp,
    "varint": _numeric,
}
