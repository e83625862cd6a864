"""Converts the values of a change to values that JSON can represent, for `Change.to_dict`.

Text, booleans, null and ordinary numbers are unchanged. Decimals, integers beyond 64 bits,
infinities, NaN, UUIDs, addresses, points in time (ISO 8601) and durations become text. A blob
becomes text such as ``0x0a1b``. A set becomes a sorted list. A map becomes an object if its keys
are text or numbers, else a list of pairs. `cdc_reader.cql.json` reads the values of keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cdc_reader.changes.delta import Assigned, CollectionDelta, Deleted, Delta
from cdc_reader.changes.part import Part
from cdc_reader.cql.values import moment

_EXACT_INTEGERS = 1 << 63
"""Integers of at least this size, which only a varint can hold, become text."""


def part_to_json(part: Part) -> dict[str, Any]:
    """Convert a part of a change to a JSON object.

    The object has a timestamp only if the part has one, that is, only in a snapshot.
    """
    found = {
        "operation": part.operation.name.lower(),
        "seq": part.seq,
        "ttl": part.ttl,
        "deltas": deltas_to_json(part.deltas),
    }
    return found if part.timestamp is None else {**found, "timestamp": part.timestamp}


def deltas_to_json(deltas: Mapping[str, Delta]) -> dict[str, Any]:
    """Convert deltas, given by column name, to a JSON object."""
    return {name: _delta(delta) for name, delta in deltas.items()}


def value_to_json(value: Any) -> Any:  # noqa: PLR0911 - a table of types
    """Convert a value of a change to one that JSON can represent."""
    match value:
        case None | bool() | str():
            return value
        case int():
            is_exact = -_EXACT_INTEGERS <= value < _EXACT_INTEGERS
            return value if is_exact else str(Decimal(value))  # `str` would limit the digits
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return f"0x{value.hex()}"
        case date():
            return value.isoformat().replace("+00:00", "Z")
        case tuple():
            return [value_to_json(element) for element in value]
        case frozenset():
            return [value_to_json(element) for element in _in_order(value)]
        case Mapping():
            return _mapping(value)
        case _:
            return str(value)


def cell_to_json(cell: pa.Scalar) -> Any:
    """Convert a cell of an Arrow column to a value that JSON can represent.

    Points in time beyond Python's calendar become numbers, as in `cdc_reader.cql.values`.
    """
    if not cell.is_valid:
        return None
    match cell:
        case pa.StructScalar():
            return {name: cell_to_json(part) for name, part in cell.items()}
        case pa.MapScalar():
            pairs = [[cell_to_json(entry[part]) for part in entry] for entry in cell.values]
            return dict(pairs) if all(isinstance(key, str) for key, _ in pairs) else pairs
        case pa.ListScalar():
            return [cell_to_json(element) for element in cell.values]
    is_moment = pa.types.is_timestamp(cell.type) or pa.types.is_date(cell.type)
    return value_to_json(moment(cell) if is_moment else cell.as_py())


def _mapping(value: Mapping[Any, Any]) -> Any:
    pairs = [(value_to_json(key), value_to_json(element)) for key, element in value.items()]
    if all(isinstance(key, str | int | float) and not isinstance(key, bool) for key, _ in pairs):
        return {key if isinstance(key, str) else str(key): element for key, element in pairs}
    return [list(pair) for pair in pairs]


def _in_order(elements: frozenset[Any]) -> list[Any]:
    """Sort the elements, so that equal sets become equal lists."""
    try:
        return sorted(elements)
    except TypeError:
        return sorted(elements, key=repr)


def _delta(delta: Delta) -> dict[str, Any]:
    match delta:
        case Assigned(value):
            return {"set": value_to_json(value)}
        case Deleted():
            return {"deleted": True}
        case CollectionDelta(overwritten, added, removed):
            return {
                "overwritten": overwritten,
                "added": value_to_json(added),
                "removed": value_to_json(removed),
            }
