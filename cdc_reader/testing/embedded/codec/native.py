"""Converts scalars to and from Python values, with the driver's codecs except for decimals."""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import Any

from cassandra import cqltypes

from cdc_reader.cql.types import Native
from cdc_reader.testing.embedded.codec.marshal import class_name
from cdc_reader.testing.embedded.codec.order import EXACT, decimal
from cdc_reader.testing.embedded.errors import InvalidRequest

_PROTOCOL = 4
_MOST_SCALE = 10_000
_BIGINT = Native("bigint")


def decode(cql_type: Native, value: bytes) -> Any:
    """Return the value in the driver's Python type; a counter is an int.

    Raises InvalidRequest for an empty value, and for a decimal with too many decimal places.
    """
    if not value and cql_type.name not in ("ascii", "blob", "text"):
        raise InvalidRequest(f"An empty {cql_type} is not supported here by this server")
    if cql_type.name != "decimal":
        return _codec(cql_type).deserialize(value, _PROTOCOL)
    number = decimal(value)
    if abs(scale(number)) > _MOST_SCALE:
        raise InvalidRequest(f"Decimals of more than {_MOST_SCALE} places are not supported here "
                             "by this server")  # fmt: skip
    return number


def encode(cql_type: Native, value: Any) -> bytes:
    """Serialize a Python value as this type; raise OverflowError if it is out of range."""
    if cql_type.name != "decimal":
        return bytes(_codec(cql_type).serialize(value, _PROTOCOL))
    places = scale(value)
    unscaled = encode(Native("varint"), int(EXACT.scaleb(value, places)))
    return places.to_bytes(4, "big", signed=True) + unscaled


def fixed_width(cql_type: Native) -> int | None:
    """Return the size in bytes of the type's values in a vector; None if it varies."""
    width: int | None = _codec(cql_type).serial_size()
    return width


def scale(number: Decimal) -> int:
    """Return the number of decimal places of `number`."""
    return -int(number.as_tuple().exponent)


@functools.cache
def _codec(cql_type: Native) -> Any:
    stored = _BIGINT if cql_type.name == "counter" else cql_type
    return cqltypes.lookup_casstype(class_name(stored))
