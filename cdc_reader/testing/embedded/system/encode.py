"""Converts Python values to cells, for the types in the server's own tables."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cdc_reader.cql.types import CqlType, ListType, MapType, Native, SetType
from cdc_reader.testing.embedded.codec.order import join_cells


def encode(cql_type: CqlType, value: Any) -> bytes:
    """Serialise the value; maps and sets in order of their keys."""
    match cql_type:
        case Native(name):
            return _NATIVE[name](value)
        case ListType(element):
            return _collection(len(value), (encode(element, item) for item in value))
        case SetType(element):
            return _collection(len(value), sorted(encode(element, item) for item in value))
        case MapType():
            cells = encode_map(cql_type, value)
            return _collection(len(cells), (part for cell in cells.items() for part in cell))
        case _:
            raise TypeError(f"{cql_type}: not a type of a system table")


def encode_map(cql_type: MapType, value: Mapping[Any, Any]) -> dict[bytes, bytes]:
    """Serialise the entries in order of their keys."""
    cells = {encode(cql_type.key, k): encode(cql_type.value, v) for k, v in value.items()}
    return dict(sorted(cells.items()))


def _collection(count: int, parts: Iterable[bytes]) -> bytes:
    return count.to_bytes(4, "big") + join_cells(list(parts))


def _integer(size: int) -> Callable[[int], bytes]:
    return lambda value: value.to_bytes(size, "big", signed=True)


_NATIVE: dict[str, Callable[[Any], bytes]] = {
    "bigint": _integer(8),
    "blob": bytes,
    "boolean": lambda value: bytes([value]),
    "double": struct.Struct(">d").pack,
    "inet": lambda value: ipaddress.ip_address(value).packed,
    "int": _integer(4),
    "text": str.encode,
    "timestamp": _integer(8),
    "timeuuid": lambda value: bytes(value.bytes),
    "tinyint": _integer(1),
    "uuid": lambda value: bytes(value.bytes),
}
