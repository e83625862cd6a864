"""Serializes the elements of a collection or UDT column to a single value for the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from cdc_reader.cql.types import CqlType, ListType, MapType, Native, SetType, UserType
from cdc_reader.testing.embedded.codec.order import SortKey, join_cells, sort_key
from cdc_reader.testing.embedded.codec.validation import map_value, set_value

Elements = Mapping[bytes, bytes]
"""Values by serialized element key; a set's values are empty."""


def encode(cql_type: CqlType, elements: Elements) -> bytes:
    """Encode the elements as the log column's value; a list becomes a map."""
    if isinstance(cql_type, UserType):
        return _encode_user_type(cql_type, elements)
    if isinstance(cql_type, SetType):
        return set_value(elements, element_order(cql_type))
    return map_value(elements.items(), element_order(cql_type))


def encode_keys(cql_type: CqlType, keys: Iterable[bytes]) -> bytes:
    """Encode the set of element keys for the column `cdc$deleted_elements_…`."""
    return set_value(keys, element_order(cql_type))


@cache
def element_order(cql_type: CqlType) -> SortKey:
    """Return a function that maps a multi-cell column's element keys to sort keys."""
    match cql_type:
        case SetType(element):
            return sort_key(element)
        case MapType(key):
            return sort_key(key)
        case ListType():
            return sort_key(Native("timeuuid"))
        case _:
            return _field_index


def _encode_user_type(cql_type: UserType, elements: Elements) -> bytes:
    by_index = {_field_index(key): value for key, value in elements.items()}
    return join_cells([by_index.get(index) for index in range(len(cql_type.fields))])


def _field_index(key: bytes) -> int:
    return int.from_bytes(key, "big")
