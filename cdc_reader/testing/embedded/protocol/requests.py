"""Requests, decoded from the bodies of frames."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from cdc_reader.testing.embedded.errors import ProtocolError
from cdc_reader.testing.embedded.grammar.ast import BatchKind
from cdc_reader.testing.embedded.protocol.body import BodyReader
from cdc_reader.testing.embedded.protocol.frame import Flag, Frame, Opcode
from cdc_reader.testing.embedded.query.model import QueryOptions, Value

Values = Sequence[Value] | Mapping[str, Value]

SERIAL = 8
LAST_CONSISTENCY = 10


class QueryFlag(enum.IntFlag):
    """Flags for the fields that follow the consistency in a QUERY, EXECUTE or BATCH."""

    VALUES = 0x01
    SKIP_METADATA = 0x02
    PAGE_SIZE = 0x04
    PAGING_STATE = 0x08
    SERIAL_CONSISTENCY = 0x10
    TIMESTAMP = 0x20
    NAMES = 0x40


@frozen
class Options:
    """A request for the server's supported options."""


@frozen
class Startup:
    """The request that opens the connection."""

    options: Mapping[str, str]


@frozen
class AuthResponse:
    """Credentials, in the format of the authenticator's SASL mechanism."""

    token: bytes


@frozen
class Register:
    """A subscription to events of these kinds."""

    events: tuple[str, ...]


@frozen
class Query:
    """A statement to execute, as text."""

    cql: str
    values: Values
    options: QueryOptions
    skip_metadata: bool = False


@frozen
class Prepare:
    """A statement to prepare."""

    cql: str


@frozen
class Execute:
    """A prepared statement to execute."""

    id: bytes
    values: Values
    options: QueryOptions
    skip_metadata: bool = False


@frozen
class Batch:
    """A batch of statements, each as text or prepared id, with its values."""

    kind: BatchKind
    statements: tuple[tuple[str | bytes, Values], ...]
    options: QueryOptions


Request = Options | Startup | AuthResponse | Register | Query | Prepare | Execute | Batch


def decode(frame: Frame) -> Request:
    """Decode the request in a frame; raise ProtocolError if it is malformed or unknown."""
    if frame.opcode not in _DECODERS:
        raise ProtocolError(f"Unknown opcode {frame.opcode}")
    if frame.flags & Flag.COMPRESSION:
        raise ProtocolError("compressed frame on a connection without compression")
    reader = BodyReader(frame.body, frame.version)
    if frame.version >= 4 and frame.flags & Flag.CUSTOM_PAYLOAD:
        reader.bytes_map()
    return _DECODERS[frame.opcode](reader)


def _batch(reader: BodyReader) -> Batch:
    number = reader.byte()
    try:
        kind = BatchKind(number)
    except ValueError:
        raise ProtocolError(f"Invalid batch type {number}") from None
    statements = tuple(_batch_statement(reader) for _ in range(reader.short()))
    consistency = _consistency(reader)
    flags = reader.byte()
    if flags & QueryFlag.NAMES:
        raise ProtocolError("named values are not supported in a batch")
    return Batch(kind, statements, _query_options(reader, consistency, flags))


def _batch_statement(reader: BodyReader) -> tuple[str | bytes, Values]:
    statement: str | bytes
    match kind := reader.byte():
        case 0:
            statement = reader.long_string()
        case 1:
            statement = reader.short_bytes()
        case _:
            raise ProtocolError(
                f"Invalid query kind in BATCH messages. Must be 0 or 1 but got {kind}"
            )
    return statement, [reader.value() for _ in range(reader.short())]


def _parameters(reader: BodyReader) -> tuple[Values, QueryOptions, bool]:
    """Read the fields after the statement: (values, options, whether to omit the metadata)."""
    consistency = _consistency(reader)
    flags = reader.byte()
    values = _values(reader, flags) if flags & QueryFlag.VALUES else []
    return values, _query_options(reader, consistency, flags), bool(flags & QueryFlag.SKIP_METADATA)


def _values(reader: BodyReader, flags: int) -> Values:
    count = reader.short()
    if flags & QueryFlag.NAMES:
        return {reader.string(): reader.value() for _ in range(count)}
    return [reader.value() for _ in range(count)]


def _query_options(reader: BodyReader, consistency: int, flags: int) -> QueryOptions:
    page_size = reader.int32() if flags & QueryFlag.PAGE_SIZE else None
    return QueryOptions(
        consistency=consistency,
        page_size=page_size if page_size is None or page_size > 0 else None,
        paging_state=reader.nullable_bytes() if flags & QueryFlag.PAGING_STATE else None,
        serial_consistency=_consistency(reader) if flags & QueryFlag.SERIAL_CONSISTENCY else SERIAL,
        timestamp=reader.int64() if flags & QueryFlag.TIMESTAMP else None,
    )


def _consistency(reader: BodyReader) -> int:
    code = reader.short()
    if code > LAST_CONSISTENCY:
        raise ProtocolError(f"Unknown code {code} for a consistency level")
    return code


_DECODERS: dict[int, Callable[[BodyReader], Request]] = {
    Opcode.STARTUP: lambda reader: Startup(reader.string_map()),
    Opcode.OPTIONS: lambda _: Options(),
    Opcode.QUERY: lambda reader: Query(reader.long_string(), *_parameters(reader)),
    Opcode.PREPARE: lambda reader: Prepare(reader.long_string()),
    Opcode.EXECUTE: lambda reader: Execute(reader.short_bytes(), *_parameters(reader)),
    Opcode.REGISTER: lambda reader: Register(tuple(reader.string_list())),
    Opcode.BATCH: _batch,
    Opcode.AUTH_RESPONSE: lambda reader: AuthResponse(reader.nullable_bytes() or b""),
}
