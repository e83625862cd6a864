"""Converts Python values to cells, for the types used in system tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_reader.cql.types import CqlType, ListType, MapType, Native, SetType
from cdc_reader.testing.embedded.codec import native
from cdc_reader.testing.embedded.codec.order import sort_key
from cdc_reader.testing.embedded.codec.validation import list_value, map_value, set_value


def encode(cql_type: CqlType, value: Any) -> bytes:
    """Serialize the value; maps and sets are sorted by key."""
    match cql_type:
        case Native():
            return native.encode(cql_type, value)
        case ListType(element):
            return list_value([encode(element, item) for item in value])
        case SetType(element):
            return set_value([encode(element, item) for item in value], sort_key(element))
        case MapType(key):
            return map_value(encode_map(cql_type, value).items(), sort_key(key))
        case _:
            raise TypeError(f"{cql_type}: not a type of a system table")


def encode_map(cql_type: MapType, value: Mapping[Any, Any]) -> dict[bytes, bytes]:
    """Serialize the entries of a map or set, by serialized key."""
    return {encode(cql_type.key, k): encode(cql_type.value, v) for k, v in value.items()}
