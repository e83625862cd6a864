"""SELECT JSON: formats each row as a JSON text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

from cdc_reader.cql.names import bare_or_quoted
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
from cdc_reader.testing.embedded.codec.order import read_fields
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.query.cast import as_text
from cdc_reader.testing.embedded.query.elements import list_elements, map_entries

_NUMBERS = frozenset(
    "tinyint smallint int bigint counter varint decimal float double boolean".split()
)
_ToJson = Callable[[bytes], str]


def row_writer(columns: Sequence[tuple[str, CqlType]]) -> Callable[[Sequence[bytes | None]], str]:
    """Return a function that formats a row as a JSON object; `columns` lists pairs (name, type)."""
    names = [_text(_label(name)) for name, _ in columns]
    writers = [json_writer(of_type) for _, of_type in columns]
    return lambda cells: _object(names, cells, writers)


def _label(name: str) -> str:
    """Quote a name if it contains upper-case letters."""
    return name if name == name.lower() else bare_or_quoted(name)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _value(value: bytes | None, write: _ToJson) -> str:
    return "null" if value is None else write(value)


def json_writer(cql_type: CqlType) -> _ToJson:
    """Return a function that formats values of a type as JSON."""
    match cql_type:
        case Native():
            return _native(cql_type)
        case ListType(element) | SetType(element):
            write = json_writer(element)
            return lambda value: f"[{', '.join(map(write, list_elements(value)))}]"
        case MapType(key, element):
            return _map(json_writer(key), json_writer(element))
        case UserType(fields=fields):
            names = [_text(name) for name, _ in fields]
            return _fields(names, [json_writer(field) for _, field in fields])
        case TupleType(elements):
            return _tuple([json_writer(element) for element in elements])
        case VectorType():
            raise InvalidRequest(f"SELECT JSON of {cql_type} is not supported by this server")


def _native(cql_type: Native) -> _ToJson:
    def write(value: bytes) -> str:
        if cql_type.name == "blob":
            return _text(f"0x{value.hex()}")
        if not value and cql_type.name in _NUMBERS:
            raise InvalidRequest("Cannot create JSON string - deserialization error")
        text = as_text(cql_type, value) if value else ""
        if cql_type.name in ("float", "double") and not math.isfinite(float(text)):
            return "null"
        return text if cql_type.name in _NUMBERS else _text(text)

    return write


def _map(write_key: _ToJson, write_value: _ToJson) -> _ToJson:
    """Return a function that formats maps; keys of any type become strings."""

    def key_text(key: bytes) -> str:
        written = write_key(key)
        return written if written.startswith('"') else _text(written)

    def write(value: bytes) -> str:
        entries = [f"{key_text(key)}: {write_value(cell)}" for key, cell in map_entries(value)]
        return f"{{{', '.join(entries)}}}"

    return write


def _fields(names: list[str], writers: list[_ToJson]) -> _ToJson:
    def write(value: bytes) -> str:
        cells = read_fields(value)
        cells += [None] * (len(names) - len(cells))
        return _object(names, cells, writers)

    return write


def _object(names: list[str], cells: Sequence[bytes | None], writers: list[_ToJson]) -> str:
    parts = [f"{n}: {_value(c, w)}" for n, c, w in zip(names, cells, writers, strict=True)]
    return f"{{{', '.join(parts)}}}"


def _tuple(writers: list[_ToJson]) -> _ToJson:
    def write(value: bytes) -> str:
        parts = [_value(c, w) for c, w in zip(read_fields(value), writers, strict=False)]
        return f"[{', '.join(parts)}]"

    return write
