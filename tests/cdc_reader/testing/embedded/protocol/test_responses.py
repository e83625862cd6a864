"""Tests that responses are encoded byte for byte as recorded from a real server."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

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
from cdc_reader.testing.embedded import errors
from cdc_reader.testing.embedded.protocol import responses
from cdc_reader.testing.embedded.protocol.body import BodyReader
from cdc_reader.testing.embedded.protocol.frame import Opcode
from cdc_reader.testing.embedded.protocol.responses import MetadataFlag, ResultFormat, ResultKind
from cdc_reader.testing.embedded.protocol.types import NATIVE_IDS, encode_type
from cdc_reader.testing.embedded.query.result import (
    ColumnSpec,
    Prepared,
    Result,
    Rows,
    SetKeyspace,
    Void,
)
from cdc_reader.testing.embedded.schema.catalog import SchemaChange
from tests.effort import calls

DATA = Path(__file__).parents[4] / "data"
ERRORS = {
    kind.code: kind
    for kind in (
        errors.ConfigurationError,
        errors.InvalidRequest,
        errors.ProtocolError,
        errors.InvalidSyntax,
        errors.Unauthorized,
    )
}


def recorded(name: str) -> Any:
    """Load a recording from the test data."""
    with gzip.open(DATA / f"scylla-5.2-{name}.json.gz", "rt") as file:
        return json.load(file)


def recorded_results() -> list[Any]:
    """Return every recorded RESULT, as a test parameter (flags, body)."""
    frames, found = recorded("frames"), []
    found += [(cql, 0, body) for cql, body in frames["system"].items()]
    for result in frames["results"]:
        found += [(result["label"], 0, body) for body in result["bodies"]]
    for answer in recorded("responses")["responses"]:
        if answer.get("opcode") == Opcode.RESULT:
            found.append((answer["request"], answer["flags"], answer["body"]))
    return [
        pytest.param(flags, base64.b64decode(body), id=name[:60]) for name, flags, body in found
    ]


def recorded_errors() -> list[Any]:
    """Return the body of every recorded ERROR, as a test parameter."""
    answers = recorded("responses")["responses"]
    return [
        pytest.param(base64.b64decode(answer["body"]), id=answer["request"][:60])
        for answer in answers
        if answer.get("opcode") == Opcode.ERROR
    ]


class Decoder(BodyReader):
    """Decodes RESULT bodies as a client does."""

    def result(self) -> tuple[Result, ResultFormat]:
        match self.int32():
            case ResultKind.VOID:
                return Void(), ResultFormat()
            case ResultKind.SET_KEYSPACE:
                return SetKeyspace(self.string()), ResultFormat()
            case ResultKind.SCHEMA_CHANGE:
                return self.schema_change(), ResultFormat()
            case ResultKind.PREPARED:
                return self.prepared(), ResultFormat()
            case ResultKind.ROWS:
                return self.rows()
            case kind:
                raise AssertionError(f"unknown kind {kind}")

    def schema_change(self) -> SchemaChange:
        change, target, keyspace = self.string(), self.string(), self.string()
        return SchemaChange(
            change, target, keyspace, None if target == "KEYSPACE" else self.string()
        )

    def prepared(self) -> Prepared:
        statement_id = self.short_bytes()
        flags, count = self.int32(), self.int32()
        key = tuple(self.short() for _ in range(self.int32()))
        assert flags == MetadataFlag.GLOBAL_TABLE
        keyspace, table = self.string(), self.string()
        bound = tuple(ColumnSpec(keyspace, table, self.string(), self.type()) for _ in range(count))
        flags, count = self.int32(), self.int32()
        columns = () if flags & MetadataFlag.NO_METADATA else self.columns(count)
        return Prepared(statement_id, bound, key, columns)

    def rows(self) -> tuple[Rows, ResultFormat]:
        flags, count = self.int32(), self.int32()
        paging_state = self.nullable_bytes() if flags & MetadataFlag.MORE_PAGES else None
        skip = bool(flags & MetadataFlag.NO_METADATA)
        nothing = ColumnSpec("", "", "", Native("int"))
        columns = (nothing,) * count if skip else self.columns(count)
        rows = [tuple(self.nullable_bytes() for _ in columns) for _ in range(self.int32())]
        return Rows(columns, rows, paging_state), ResultFormat(skip_metadata=skip)

    def columns(self, count: int) -> tuple[ColumnSpec, ...]:
        return tuple(
            ColumnSpec(self.string(), self.string(), self.string(), self.type())
            for _ in range(count)
        )

    def type(self) -> CqlType:
        natives = {code: name for name, code in NATIVE_IDS.items()}
        match self.short():
            case 0x20:
                return ListType(self.type())
            case 0x21:
                return MapType(self.type(), self.type())
            case 0x22:
                return SetType(self.type())
            case 0x30:
                keyspace, name = self.string(), self.string()
                fields = tuple((self.string(), self.type()) for _ in range(self.short()))
                return UserType(keyspace, name, fields)
            case 0x31:
                return TupleType(tuple(self.type() for _ in range(self.short())))
            case code:
                return Native(natives[code])


@pytest.mark.parametrize(("flags", "body"), recorded_results())
def test_a_recorded_result_is_encoded_again(flags: int, body: bytes) -> None:
    """Decoding a recorded RESULT and encoding it again yields the same bytes."""
    decoder = Decoder(body)
    warnings = tuple(decoder.string_list()) if flags & 0x08 else ()
    result, style = decoder.result()
    answer = responses.result(result, 4, style)
    frame = responses.Answer(answer.opcode, answer.body, warnings).frame(4, 7)
    assert frame == bytes((0x84, flags, 0, 7, 8)) + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("body", recorded_errors())
def test_a_recorded_error_is_encoded_again(body: bytes) -> None:
    """Decoding a recorded ERROR and encoding it again yields the same bytes."""
    decoder = Decoder(body)
    code, message = decoder.int32(), decoder.string()
    error: errors.CqlError
    match code:
        case errors.AlreadyExists.code:
            error = errors.AlreadyExists(message, decoder.string(), decoder.string())
        case errors.Unprepared.code:
            error = errors.Unprepared(message, decoder.short_bytes())
        case _:
            error = ERRORS[code](message)
    assert responses.error(error) == responses.Answer(Opcode.ERROR, body)


def test_recorded_events_are_encoded_again() -> None:
    """Decoding a recorded schema event and encoding it again yields the same bytes."""
    for event in recorded("responses")["events"]:
        decoder = Decoder(base64.b64decode(event["body"]))
        assert decoder.string() == "SCHEMA_CHANGE"
        answer = responses.schema_event(decoder.schema_change())
        assert answer == responses.Answer(Opcode.EVENT, base64.b64decode(event["body"]))


def test_a_node_event_names_the_nodes_address() -> None:
    """A STATUS_CHANGE contains the node's address as an [inet]: size, address, port."""
    answer = responses.node_event("STATUS_CHANGE", "UP", "127.0.0.2", 9042)
    assert answer.body == b"\0\x0dSTATUS_CHANGE\0\x02UP\x04\x7f\0\0\x02\0\0\x23\x52"


def test_errors_about_replicas_carry_their_counts() -> None:
    """Unavailable and read timeout errors contain the fields of the specification."""
    unavailable = responses.error(errors.Unavailable("u", 4, 2, 1)).body
    assert unavailable == bytes.fromhex("00001000 0001 75 0004 00000002 00000001")
    timeout = responses.error(errors.ReadTimeout("t", 4, 1, 2, data_present=True)).body
    assert timeout == bytes.fromhex("00001200 0001 74 0004 00000001 00000002 01")


def test_a_vector_is_a_custom_type() -> None:
    """A vector's element type and dimension are encoded in its class name."""
    name = (
        "org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType, 3)"
    )
    encoded = encode_type(VectorType(Native("float"), 3))
    assert encoded == b"\0\0" + len(name).to_bytes(2, "big") + name.encode()


def test_version_3_knows_neither_warnings_nor_key_indexes() -> None:
    """A version 3 response contains none of the fields that version 4 added."""
    column = ColumnSpec("ks", "t", "pk", Native("int"))
    prepared = Prepared(b"id", (column,), (0,), (), warnings=("careful",))
    frame = responses.result(prepared, 3).frame(3, 1)
    assert frame[1] == 0
    assert b"careful" not in frame
    assert len(responses.result(prepared, 4).body) == len(responses.result(prepared, 3).body) + 6


def test_an_lwt_statement_is_marked_for_clients_that_ask() -> None:
    """The flags of the bind metadata mark LWT statements if the client requests the mark."""
    prepared = Prepared(b"id", (), is_lwt=True)
    plain = responses.result(prepared, 4).body
    marked = responses.result(prepared, 4, ResultFormat(lwt_mark=True)).body
    flags = slice(8, 12)
    assert (plain[flags], marked[flags]) == (b"\0\0\0\0", b"\x80\0\0\0")


def test_a_page_is_encoded_in_few_calls() -> None:
    """Encoding takes at most three calls per cell, so that benchmarks measure clients."""
    column = ColumnSpec("ks", "t", "c", Native("blob"))
    rows = Rows((column,) * 11, [(b"\0" * 16, None, b"\0\0\0\1", b"x" * 300, *(b"",) * 7)] * 1_000)
    assert calls(lambda: responses.result(rows)) <= 3 * 11_000
