"""Responses: READY, SUPPORTED, each kind of RESULT, ERROR by code, and EVENT."""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterable, Mapping
from uuid import UUID

from attrs import frozen

from cdc_reader.testing.embedded.errors import (
    AlreadyExists,
    CqlError,
    ReadTimeout,
    Unavailable,
    Unprepared,
)
from cdc_reader.testing.embedded.protocol import body
from cdc_reader.testing.embedded.protocol.compression import Compression
from cdc_reader.testing.embedded.protocol.frame import Flag, Opcode, encode_frame
from cdc_reader.testing.embedded.protocol.types import encode_type
from cdc_reader.testing.embedded.query.result import (
    ColumnSpec,
    EncodedPage,
    Prepared,
    Result,
    Rows,
    SetKeyspace,
    Void,
)
from cdc_reader.testing.embedded.schema.catalog import SchemaChange

EVENT_STREAM = -1
_MAX_STRING = 0xFFFF


class ResultKind(enum.IntEnum):
    """The kinds of RESULT responses."""

    VOID = 1
    ROWS = 2
    SET_KEYSPACE = 3
    PREPARED = 4
    SCHEMA_CHANGE = 5


class MetadataFlag(enum.IntFlag):
    """Flags of result and bind metadata."""

    GLOBAL_TABLE = 0x01
    MORE_PAGES = 0x02
    NO_METADATA = 0x04
    LWT = 0x80000000


@frozen
class ResultFormat:
    """How to encode a result: whether to omit metadata, and whether to mark LWT statements."""

    skip_metadata: bool = False
    lwt_mark: bool = False


@frozen
class Answer:
    """A response without version and stream; its body is `body` followed by `rows`."""

    opcode: Opcode
    body: bytes = b""
    warnings: tuple[str, ...] = ()
    rows: bytes = b""
    trace: UUID | None = None

    @property
    def content(self) -> bytes:
        """The whole body."""
        return self.body + self.rows

    def frame(self, version: int, stream: int, compression: Compression | None = None) -> bytes:
        """Encode the frame; warnings require version 4, and an empty body is not compressed."""
        content, rows, flags = self.body, self.rows, Flag(0)
        if self.warnings and version >= 4:
            content, flags = body.string_list(self.warnings) + content, Flag.WARNING
        if self.trace is not None:
            content, flags = self.trace.bytes + content, flags | Flag.TRACING
        if compression is not None and (content or rows):
            content, rows = compression.compress(content + rows), b""
            flags |= Flag.COMPRESSION
        return encode_frame(version, stream, self.opcode, content, flags, rows)


def ready() -> Answer:
    """Return a READY response, which ends the handshake."""
    return Answer(Opcode.READY)


def supported(options: Mapping[str, Iterable[str]]) -> Answer:
    """Return a SUPPORTED response to OPTIONS."""
    return Answer(Opcode.SUPPORTED, body.string_multimap(options))


def authenticate(authenticator: str) -> Answer:
    """Return an AUTHENTICATE response, which names the authenticator (a Java class)."""
    return Answer(Opcode.AUTHENTICATE, body.string(authenticator))


def auth_success() -> Answer:
    """Return an AUTH_SUCCESS response, which accepts the credentials."""
    return Answer(Opcode.AUTH_SUCCESS, body.nullable_bytes(None))


def error(refusal: CqlError) -> Answer:
    """Return an ERROR response, with the additional fields that the error's code requires."""
    head = body.int32(refusal.code) + body.string(_shortened(refusal.message))
    return Answer(Opcode.ERROR, head + _error_fields(refusal))


def _shortened(message: str) -> str:
    """Truncate a message, which may quote a long text, to the maximum length of a [string]."""
    return message.encode()[:_MAX_STRING].decode(errors="ignore")


def _error_fields(refusal: CqlError) -> bytes:
    match refusal:
        case Unavailable():
            numbers = body.int32(refusal.required) + body.int32(refusal.alive)
            return body.short(refusal.consistency) + numbers
        case ReadTimeout():
            numbers = body.int32(refusal.received) + body.int32(refusal.block_for)
            return body.short(refusal.consistency) + numbers + bytes([refusal.data_present])
        case AlreadyExists():
            return body.string(refusal.keyspace) + body.string(refusal.table)
        case Unprepared():
            return body.short_bytes(refusal.statement_id)
        case _:
            return b""


def result(outcome: Result, version: int = 4, style: ResultFormat | None = None) -> Answer:
    """Return a RESULT response for the outcome of a statement."""
    style = style or ResultFormat()
    match outcome:
        case Void(warnings):
            return _result(ResultKind.VOID, b"", warnings)
        case SetKeyspace(keyspace):
            return _result(ResultKind.SET_KEYSPACE, body.string(keyspace))
        case SchemaChange():
            return _result(ResultKind.SCHEMA_CHANGE, _schema_change(outcome), outcome.warnings)
        case Prepared():
            encoded = _prepared(outcome, version, style.lwt_mark)
            return _result(ResultKind.PREPARED, encoded, outcome.warnings)
        case EncodedPage():
            head = _page_head(outcome, style.skip_metadata)
            return Answer(Opcode.RESULT, head, rows=outcome.rows)
        case Rows():
            return _result(ResultKind.ROWS, _rows(outcome, style.skip_metadata), outcome.warnings)


def _result(kind: ResultKind, encoded: bytes, warnings: tuple[str, ...] = ()) -> Answer:
    return Answer(Opcode.RESULT, body.int32(kind) + encoded, warnings)


def schema_event(change: SchemaChange) -> Answer:
    """Return a SCHEMA_CHANGE event, which reports the effect of a DDL statement."""
    return Answer(Opcode.EVENT, body.string("SCHEMA_CHANGE") + _schema_change(change))


def node_event(kind: str, change: str, address: str, port: int) -> Answer:
    """Return a TOPOLOGY_CHANGE (NEW_NODE, REMOVED_NODE) or STATUS_CHANGE (UP, DOWN) event."""
    packed = ipaddress.ip_address(address).packed
    where = bytes([len(packed)]) + packed + body.int32(port)
    return Answer(Opcode.EVENT, body.string(kind) + body.string(change) + where)


def _schema_change(change: SchemaChange) -> bytes:
    words = [change.change, change.target, change.keyspace]
    if change.name is not None:
        words.append(change.name)
    return b"".join(map(body.string, words))


def _prepared(prepared: Prepared, version: int, lwt_mark: bool) -> bytes:
    encoded = body.short_bytes(prepared.id) + _bind_metadata(prepared, version, lwt_mark)
    if not prepared.result_columns:
        return encoded + _flags(MetadataFlag.NO_METADATA) + body.int32(0)
    return encoded + _metadata(prepared.result_columns, None, skip=False)


def _bind_metadata(prepared: Prepared, version: int, lwt_mark: bool) -> bytes:
    """Encode the metadata of a statement's bind variables.

    From version 4 on, the metadata includes the indexes of the partition key's variables.
    """
    columns = prepared.bind_columns
    is_global = len({(column.keyspace, column.table) for column in columns}) == 1
    flags = MetadataFlag.GLOBAL_TABLE if is_global else MetadataFlag(0)
    if lwt_mark and prepared.is_lwt:
        flags |= MetadataFlag.LWT
    parts = [_flags(flags), body.int32(len(columns))]
    if version >= 4:
        parts.append(body.int32(len(prepared.partition_key_indexes)))
        parts.extend(map(body.short, prepared.partition_key_indexes))
    if is_global:
        parts += (body.string(columns[0].keyspace), body.string(columns[0].table))
        parts.extend(body.string(column.name) + encode_type(column.type) for column in columns)
    else:
        parts.extend(map(_column, columns))
    return b"".join(parts)


def _metadata(columns: tuple[ColumnSpec, ...], paging_state: bytes | None, skip: bool) -> bytes:
    flags = MetadataFlag.NO_METADATA if skip else MetadataFlag(0)
    if paging_state is not None:
        flags |= MetadataFlag.MORE_PAGES
    parts = [_flags(flags), body.int32(len(columns))]
    if paging_state is not None:
        parts.append(body.nullable_bytes(paging_state))
    if not skip:
        parts.extend(map(_column, columns))
    return b"".join(parts)


def _column(column: ColumnSpec) -> bytes:
    names = (column.keyspace, column.table, column.name)
    return b"".join(map(body.string, names)) + encode_type(column.type)


def _flags(flags: int) -> bytes:
    return flags.to_bytes(4, "big")


def _rows(rows: Rows, skip_metadata: bool) -> bytes:
    parts = [_metadata(rows.columns, rows.paging_state, skip_metadata), body.int32(len(rows.rows))]
    append, short_lengths = parts.append, _SHORT_LENGTHS
    for row in rows.rows:  # the server's hot loop: as few calls per cell as possible
        for cell in row:
            if cell is None:
                append(_NULL)
            else:
                size = len(cell)
                append(short_lengths[size] if size < 256 else size.to_bytes(4, "big"))
                append(cell)
    return b"".join(parts)


def _page_head(page: EncodedPage, skip_metadata: bool) -> bytes:
    """Encode the part of a page before its rows."""
    state = b""
    flags = MetadataFlag.NO_METADATA if skip_metadata else page.flags
    if page.paging_state is not None:
        flags |= MetadataFlag.MORE_PAGES
        state = body.nullable_bytes(page.paging_state)
    head = body.int32(ResultKind.ROWS) + body.int32(flags) + body.int32(page.columns)
    return head + state + (b"" if skip_metadata else page.metadata)


_NULL = body.int32(-1)
_SHORT_LENGTHS = tuple(body.int32(size) for size in range(256))
