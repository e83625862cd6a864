"""Parses a partition key written in JSON, such as the value of an option."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, TypeGuard

from cdc_reader._time import parse_timestamp
from cdc_reader.cql.schema import Column, TableSchema
from cdc_reader.cql.types import CqlType, Transform, TupleType, UserType
from cdc_reader.cql.values import frozen_map, integer
from cdc_reader.errors import ConfigurationError

Convert = Callable[[Any], Any]

_NO_VALUE = (
    ArithmeticError,
    AttributeError,
    ConfigurationError,
    KeyError,
    TypeError,
    ValueError,
)
"""The errors that conversions raise for a value of the wrong type."""
_FORMS = (
    "an object keyed by column, an array in the order of the key, or the value of its only column"
)


def parse_key(text: str, table: TableSchema) -> dict[str, Any]:
    """Parse a partition key into a dict of the driver's values by column.

    Values are written as `Change.to_dict` writes them: types that JSON lacks are text, and a blob
    is ``0x…``. Raises ConfigurationError for text that is not such a key.
    """
    columns = table.partition_key
    try:
        found = json.loads(text, parse_float=Decimal, parse_int=integer)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError("key", text, f"give JSON: {_FORMS} ({error})") from None
    given = _by_column(found, columns)
    return {column.name: _value(column, given[column.name]) for column in columns}


def _by_column(found: object, columns: tuple[Column, ...]) -> Mapping[str, object]:
    names = [column.name for column in columns]
    match found:
        case dict() if sorted(found) == sorted(names):
            return found
        case list() if len(found) == len(names) and len(names) > 1:
            return dict(zip(names, found, strict=True))
        case _ if len(names) == 1 and not isinstance(found, dict):
            return {names[0]: found}
    raise ConfigurationError(
        "key", json.dumps(found, default=str), f"the key is {', '.join(names)}: give {_FORMS}"
    )


def _value(column: Column, given: object) -> Any:
    try:
        return from_json(column.type, given)
    except _NO_VALUE:
        remedy = f"give a value of type {column.type}"
        raise ConfigurationError(f"key column {column.name}", given, remedy) from None


def from_json(cql_type: CqlType, given: Any) -> Any:
    """Convert a JSON value for the driver; raise one of `_NO_VALUE` if it has the wrong type."""
    return _FROM_JSON(cql_type)(given)


def _sequence(_: CqlType, element: Convert) -> Convert:
    return lambda given: tuple(map(element, given))


def _map(_: CqlType, key: Convert, value: Convert) -> Convert:
    def convert(given: Any) -> Any:
        pairs = given.items() if isinstance(given, dict) else given
        return frozen_map([(key(k), value(v)) for k, v in pairs])

    return convert


def _struct(cql_type: TupleType | UserType, parts: Sequence[Convert]) -> Convert:
    if isinstance(cql_type, TupleType):
        return lambda given: tuple(
            None if each is None else p(each) for p, each in zip(parts, given, strict=True)
        )
    fields = {name: part for (name, _), part in zip(cql_type.fields, parts, strict=True)}
    return partial(_fields, fields)


def _fields(fields: Mapping[str, Convert], given: Any) -> tuple[Any, ...]:
    """Convert the fields of a user-defined type; missing fields are null."""
    values = dict(given)
    if unknown := values.keys() - fields.keys():
        raise KeyError(*unknown)
    found = ((part, values.get(name)) for name, part in fields.items())
    return tuple(None if value is None else part(value) for part, value in found)


def _unchanged(given: object) -> object:
    return given


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(given)
    return given


def _whole(given: object) -> int:
    """Convert an integer or its text; object keys and very long integers are written as text."""
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise TypeError(given)
    return integer(given) if isinstance(given, str) else given


def _flag(given: object) -> bool:
    if not isinstance(given, bool):
        raise TypeError(given)
    return given


def _blob(given: str) -> bytes:
    return bytes.fromhex(given.removeprefix("0x"))


def _is_text(given: object) -> TypeGuard[str]:
    """Return whether the value is text that is no number; keys of objects are always text."""
    return isinstance(given, str) and not re.fullmatch(r"-?\d+", given)


def _date(given: object) -> int | str:
    """Convert text, or days since 1970; the driver takes numbers as in CQL, where 2^31 is 1970."""
    return given if _is_text(given) else _whole(given) + (1 << 31)


def _time(given: object) -> int | str:
    """Convert text, or ns since midnight."""
    return given if _is_text(given) else _whole(given)


def _millis(given: object) -> int:
    return parse_timestamp(given) // 1_000 if _is_text(given) else _whole(given)


_NATIVE: Mapping[str, Convert] = {
    **dict.fromkeys(("ascii", "text", "inet"), _text),
    "date": _date,
    "time": _time,
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "varint"), _whole),
    **dict.fromkeys(("uuid", "timeuuid"), uuid.UUID),
    **dict.fromkeys(("float", "double"), float),
    "blob": _blob,
    "boolean": _flag,
    **dict.fromkeys(("counter", "duration"), _unchanged),  # these types cannot be part of a key
    "decimal": Decimal,
    "timestamp": _millis,
}
_FROM_JSON: Transform[Convert] = Transform(
    native=lambda cql_type: _NATIVE[cql_type.name],
    sequence=_sequence,
    mapping=_map,
    struct=_struct,
)
