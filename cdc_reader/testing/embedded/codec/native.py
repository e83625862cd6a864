"""Converts scalars to and from Python values with the driver's codec."""

from __future__ import annotations

from typing import Any

from cassandra import cqltypes

from cdc_reader.cql.types import Native
from cdc_reader.testing.embedded.codec.marshal import class_name

_PROTOCOL = 4
_BIGINT = Native("bigint")


def decode(cql_type: Native, value: bytes) -> Any:
    """Return the value as the driver would; a counter is a number."""
    return _codec(cql_type).deserialize(value, _PROTOCOL)


def encode(cql_type: Native, value: Any) -> bytes:
    """Return the bytes of a Python value of the type."""
    return bytes(_codec(cql_type).serialize(value, _PROTOCOL))


def _codec(cql_type: Native) -> Any:
    stored = _BIGINT if cql_type.name == "counter" else cql_type
    return cqltypes.lookup_casstype(class_name(stored))
