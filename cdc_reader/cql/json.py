"""Parses a partition key that is written in JSON, as in an option."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from cdc_reader._time import parse_timestamp
from cdc_reader.cql.schema import Column, ColumnKind, TableSchema
from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
)
from cdc_reader.errors import ConfigurationError

_NO_VALUE = (
    ArithmeticError,
    AttributeError,
    ConfigurationError,
    KeyError,
    TypeError,
    ValueError,
)
"""What conversions raise for a value that is not of the type."""
_FORMS = "an object by column, an array in the order of the key, or the value of its only column"


def parse_key(text: str, table: TableSchema) -> dict[str, Any]:
    """Parse a partition key into values by column, as the driver takes them.

    Values are written as `Change.to_dict` writes them: types that JSON lacks are text, and a
    blob is ``0x…``. Raises ConfigurationError.
    """
    columns = [column for column in table.columns if column.kind is ColumnKind.PARTITION_KEY]
    try:
        found = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError("key", text, f"give JSON: {_FORMS} ({error})") from None
    given = _by_column(found, columns)
    return {column.name: _value(column, given[column.name]) for column in columns}


def _by_column(found: object, columns: list[Column]) -> Mapping[str, object]:
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
    """Convert a JSON value for the driver; raises one of `_NO_VALUE` if it is not of the type."""
    match cql_type:
        case Native(name):
            return _NATIVE.get(name, _unchanged)(given)
        case ListType(element) | SetType(element) | VectorType(element):
            return [from_json(element, each) for each in given]
        case MapType(key, value):
            pairs = given.items() if isinstance(given, dict) else given
            return {from_json(key, k): from_json(value, v) for k, v in pairs}
        case TupleType(elements):
            return tuple(from_json(*pair) for pair in zip(elements, given, strict=True))
        case UserType(fields=fields):
            return _fields(fields, dict(given))


def _fields(fields: Sequence[tuple[str, CqlType]], given: dict[str, Any]) -> tuple[Any, ...]:
    """Convert the fields of a user-defined type; missing fields are null."""
    values = [(part, given.pop(name, None)) for name, part in fields]
    if given:
        raise KeyError(*given)
    return tuple(None if value is None else from_json(part, value) for part, value in values)


def _unchanged(given: object) -> object:
    return given


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(given)
    return given


def _whole(given: object) -> int:
    """Accept text as well: keys of JSON objects are text, and so are very long integers."""
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise TypeError(given)
    return int(given)


def _flag(given: object) -> bool:
    if not isinstance(given, bool):
        raise TypeError(given)
    return given


def _blob(given: str) -> bytes:
    return bytes.fromhex(given.removeprefix("0x"))


def _millis(given: object) -> int:
    return parse_timestamp(str(given)) // 1_000


_NATIVE: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("ascii", "text", "date", "time", "inet"), _text),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "varint"), _whole),
    **dict.fromkeys(("uuid", "timeuuid"), uuid.UUID),
    **dict.fromkeys(("float", "double"), float),
    "blob": _blob,
    "boolean": _flag,
    "decimal": Decimal,
    "timestamp": _millis,
}
