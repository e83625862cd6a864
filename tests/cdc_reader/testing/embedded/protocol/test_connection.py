"""Tests how a connection decodes bytes to requests."""

import io
from typing import Any

import pytest
from cassandra import ConsistencyLevel
from cassandra.protocol import (
    BatchMessage,
)
from cassandra.query import UNSET_VALUE, BatchType
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.testing.embedded.errors import ProtocolError
from cdc_reader.testing.embedded.grammar.ast import BatchKind
from cdc_reader.testing.embedded.protocol.connection import Call, Connection, State
from cdc_reader.testing.embedded.protocol.frame import HEADER, Opcode
from cdc_reader.testing.embedded.protocol.requests import (
    Batch,
    Prepare,
    Query,
)
from cdc_reader.testing.embedded.query.model import UNSET, QueryOptions


def frame(
    opcode: int, body: bytes = b"", stream: int = 1, version: int = 4, flags: int = 0
) -> bytes:
    """Return a request frame."""
    return HEADER.pack(version, flags, stream, opcode, len(body)) + body


def driver_frame(message: Any, version: int = 4) -> bytes:
    """Encode a request as cassandra-driver does."""
    body = io.BytesIO()
    message.send_body(body, version)
    return frame(message.opcode, body.getvalue(), version=version)


def ready() -> Connection:
    """Return a connection that has completed the handshake."""
    return Connection(State.READY)


def request(data: bytes, connection: Connection | None = None) -> Any:
    """Decode the only request in `data`."""
    (call,) = (connection or ready()).receive(data)
    return call.request


def test_named_values_are_understood() -> None:
    """If the flag for named values is set, values are decoded to a dict."""
    body = b"\0\0\0\x01q" + b"\0\x01" + b"\x41" + b"\0\x01" + b"\0\x01k" + b"\0\0\0\x01v"
    assert request(frame(Opcode.QUERY, body)) == Query("q", {"k": b"v"}, QueryOptions())


def test_a_batch_of_texts_and_ids_is_understood() -> None:
    """A batch contains statements as text and as prepared ids, each with its values."""
    statements = [(False, "INSERT", [b"1"]), (True, b"id", [None, UNSET_VALUE])]
    message = BatchMessage(BatchType.UNLOGGED, statements, ConsistencyLevel.ONE, timestamp=9)
    assert request(driver_frame(message)) == Batch(
        BatchKind.UNLOGGED,
        (("INSERT", [b"1"]), (b"id", [None, UNSET])),
        QueryOptions(timestamp=9),
    )


def test_a_custom_payload_is_passed_over() -> None:
    """A custom payload before the body is ignored."""
    body = b"\0\x01" + b"\0\x01k" + b"\0\0\0\x01v" + b"\0\0\0\x01q"
    assert request(frame(Opcode.PREPARE, body, flags=0x04)) == Prepare("q")


@pytest.mark.parametrize(
    ("state", "opcode"),
    [
        (State.NEW, Opcode.QUERY),
        (State.AUTHENTICATING, Opcode.OPTIONS),
        (State.READY, Opcode.STARTUP),
    ],
)
def test_a_request_out_of_turn_is_refused(state: State, opcode: Opcode) -> None:
    """A request that the handshake's state does not allow is rejected."""
    refusal = request(frame(opcode, b"\0\0"), Connection(state))
    assert isinstance(refusal, ProtocolError)
    assert refusal.message.startswith("Unexpected message")


@given(st.lists(st.binary(max_size=64)), st.sampled_from(State))
def test_no_bytes_crash_the_connection(chunks: list[bytes], state: State) -> None:
    """Any bytes are decoded to requests and errors, or buffered until more arrive."""
    connection = Connection(state)
    for chunk in chunks:
        assert all(isinstance(call, Call) for call in connection.receive(chunk))


@given(st.sampled_from(Opcode), st.binary(max_size=200), st.integers(0, 255), st.integers(3, 4))
def test_no_body_crashes_the_decoder(opcode: int, body: bytes, flags: int, version: int) -> None:
    """A complete frame is decoded to exactly one request or error."""
    assert request(frame(opcode, body, flags=flags, version=version)) is not None
