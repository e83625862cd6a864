"""The metadata of a RESULT of kind ROWS: flags, paging state, columns and their types."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from attrs import evolve, frozen

from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    rebuilt,
)
from cdc_reader.decoding.buffer import Buffer
from cdc_reader.decoding.marshal import check_depth, parse_marshal
from cdc_reader.errors import DecodeError, TableAlteredError

KIND_ROWS = 2
MAX_BODY = 1 << 28
"""The native protocol's limit on a frame's body, in bytes; Arrow's 32-bit offsets rely on it."""

_GLOBAL_TABLE, _MORE_PAGES, _NO_METADATA, _METADATA_ID = 1, 2, 4, 8

_NATIVE_BY_CODE = {
    0x01: "ascii", 0x02: "bigint", 0x03: "blob", 0x04: "boolean", 0x05: "counter",
    0x06: "decimal", 0x07: "double", 0x08: "float", 0x09: "int", 0x0A: "text",
    0x0B: "timestamp", 0x0C: "uuid", 0x0D: "text", 0x0E: "varint", 0x0F: "timeuuid",
    0x10: "inet", 0x11: "date", 0x12: "time", 0x13: "smallint", 0x14: "tinyint",
    0x15: "duration",
}  # fmt: skip

_parsed: dict[tuple[int, int, bytes], tuple[bytes, tuple[Column, ...]]] = {}
"""Cache of parsed columns, because all pages of a query have the same description of the columns.

Maps the description's first bytes, which include the table's name, to the whole description and its
columns.
"""

_BEGINNING, _LONGEST, _MOST = 100, 1 << 16, 128
"""Limits of the cache: bytes in a key, bytes of the longest description, number of entries."""


@frozen
class ResultMetadata:
    """The part of a RESULT before its rows.

    `columns` is None if the server was asked to omit the columns and the statement does not provide
    them either. `rows_offset` is the position of the row count. `metadata_id` is the server's id
    for the columns, if they have changed.
    """

    column_count: int
    columns: tuple[Column, ...] | None
    paging_state: bytes | None
    rows_offset: int
    metadata_id: bytes | None = None

    def agreed_columns(self) -> tuple[Column, ...]:
        """Return the columns; raise DecodeError if they are unknown or their number is wrong."""
        if self.columns is None:
            raise DecodeError(
                "the result has no metadata, and no columns are known from preparing the query"
            )
        if self.column_count != len(self.columns):
            raise _altered(f"{self.column_count} columns", str(len(self.columns)))
        return self.columns


def parse_metadata(body: bytes, promised: tuple[Column, ...] | None = None) -> ResultMetadata:
    """Parse the metadata of a RESULT body that starts at its kind.

    `promised` contains the columns to use if the body does not contain them. Raises DecodeError if
    the kind is not ROWS.
    """
    if len(body) > MAX_BODY:
        raise DecodeError(f"expected a result of at most {MAX_BODY} bytes, found {len(body)}")
    buffer = Buffer(body)
    if (kind := buffer.integer()) != KIND_ROWS:
        raise DecodeError(f"expected a result of kind {KIND_ROWS} (rows), found {kind}")
    return read_metadata(buffer, promised)


def read_metadata(buffer: Buffer, promised: tuple[Column, ...] | None = None) -> ResultMetadata:
    """Parse the metadata of rows or of a prepared statement, at the buffer's position."""
    flags, count = buffer.integer(), buffer.count("columns")
    paging_state = buffer.value() if flags & _MORE_PAGES else None
    metadata_id = bytes(buffer.take(buffer.unsigned_short())) if flags & _METADATA_ID else None
    columns = promised if flags & _NO_METADATA else _columns(buffer, flags, count)
    return ResultMetadata(count, columns, paging_state, buffer.position, metadata_id)


@lru_cache(maxsize=128)  # only successes are cached, not errors
def check_same(found: tuple[Column, ...], expected: tuple[Column, ...]) -> None:
    """Raise TableAlteredError unless names and types agree; `frozen` is ignored."""
    if len(found) != len(expected):
        raise _altered(f"{len(found)} columns", str(len(expected)))
    for theirs, ours in zip(found, expected, strict=True):
        if theirs.name != ours.name or _bare(theirs.type) != _bare(ours.type):
            raise _altered(f"column {theirs.name} {theirs.type}", f"{ours.name} {ours.type}")


def _altered(found: str, expected: str) -> TableAlteredError:
    return TableAlteredError(
        f"the result has {found}, expected {expected}: the table was altered; begin the read again"
    )


def _bare(cql_type: CqlType) -> CqlType:
    """Return the type without any `frozen`, which the protocol does not transmit."""
    return rebuilt(cql_type, _thawed)


def _thawed(cql_type: CqlType) -> CqlType:
    if isinstance(cql_type, ListType | SetType | MapType | UserType):
        return evolve(cql_type, frozen=False)
    return cql_type


def _columns(buffer: Buffer, flags: int, count: int) -> tuple[Column, ...]:
    """Parse the columns. Descriptions are self-delimiting, so equal bytes mean equal columns."""
    start = buffer.position
    kind = flags & _GLOBAL_TABLE, count, buffer.data[start : start + _BEGINNING]
    described, columns = _parsed.get(kind, (b"", ()))
    if described and buffer.data.startswith(described, start):
        buffer.position += len(described)
        return columns
    columns = _parse_columns(buffer, flags, count)
    described = buffer.data[start : buffer.position]
    if len(described) <= _LONGEST:
        if len(_parsed) >= _MOST:
            _parsed.clear()
        _parsed[kind] = described, columns
    return columns


def _parse_columns(buffer: Buffer, flags: int, count: int) -> tuple[Column, ...]:
    if flags & _GLOBAL_TABLE:
        _table(buffer)
    return tuple(_column(buffer, flags) for _ in range(count))


def _column(buffer: Buffer, flags: int) -> Column:
    if not flags & _GLOBAL_TABLE:
        _table(buffer)
    return Column(buffer.string(), _type(buffer))


def _table(buffer: Buffer) -> None:
    buffer.string()
    buffer.string()


def _type(buffer: Buffer, depth: int = 0) -> CqlType:
    check_depth(depth)
    code = buffer.unsigned_short()
    if code in _NATIVE_BY_CODE:
        return Native(_NATIVE_BY_CODE[code])
    if code in _PARAMETRIC_BY_CODE:
        return _PARAMETRIC_BY_CODE[code](buffer, depth)
    raise DecodeError(f"unknown type code 0x{code:04x} in the result's metadata")


def _user_type(buffer: Buffer, depth: int) -> UserType:
    keyspace, name, count = buffer.string(), buffer.string(), buffer.unsigned_short()
    fields = tuple((buffer.string(), _type(buffer, depth + 1)) for _ in range(count))
    return UserType(keyspace, name, fields)


def _tuple(buffer: Buffer, depth: int) -> TupleType:
    count = buffer.unsigned_short()
    return TupleType(tuple(_type(buffer, depth + 1) for _ in range(count)))


def _map(buffer: Buffer, depth: int) -> MapType:
    return MapType(_type(buffer, depth + 1), _type(buffer, depth + 1))


_PARAMETRIC_BY_CODE: dict[int, Callable[[Buffer, int], CqlType]] = {
    0x00: lambda buffer, depth: parse_marshal(buffer.string(), depth),
    0x20: lambda buffer, depth: ListType(_type(buffer, depth + 1)),
    0x21: _map,
    0x22: lambda buffer, depth: SetType(_type(buffer, depth + 1)),
    0x30: _user_type,
    0x31: _tuple,
}
