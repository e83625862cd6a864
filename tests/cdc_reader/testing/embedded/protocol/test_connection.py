"""Tests how a connection decodes bytes to requests."""

import base64
import gzip
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cassandra import ConsistencyLevel
from cassandra.protocol import (
    AuthResponseMessage,
    BatchMessage,
    ExecuteMessage,
    OptionsMessage,
    PrepareMessage,
    QueryMessage,
    RegisterMessage,
    StartupMessage,
)
from cassandra.query import UNSET_VALUE, BatchType
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.testing.embedded.errors import CqlError, ProtocolError
from cdc_reader.testing.embedded.grammar.ast import BatchKind
from cdc_reader.testing.embedded.protocol import responses
from cdc_reader.testing.embedded.protocol.connection import Call, Connection, State
from cdc_reader.testing.embedded.protocol.frame import HEADER, MAX_BODY, Opcode
from cdc_reader.testing.embedded.protocol.requests import (
    AuthResponse,
    Batch,
    Execute,
    Options,
    Prepare,
    Query,
    Register,
    Startup,
)
from cdc_reader.testing.embedded.query.model import UNSET, QueryOptions

DATA = Path(__file__).parents[4] / "data"


def recorded(request: str) -> Any:
    """Return the recorded response to a request."""
    with gzip.open(DATA / "scylla-5.2-responses.json.gz", "rt") as file:
        (found,) = (r for r in json.load(file)["responses"] if r["request"] == request)
    return found


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


def test_start_up_requests_of_the_driver_are_understood() -> None:
    """The driver's OPTIONS, STARTUP, AUTH_RESPONSE and REGISTER are decoded."""
    startup = driver_frame(StartupMessage("3.4.5", {"DRIVER_NAME": "d"}))
    login = driver_frame(AuthResponseMessage(b"\0user\0password"))
    register = driver_frame(RegisterMessage(["TOPOLOGY_CHANGE", "SCHEMA_CHANGE"]))
    assert request(driver_frame(OptionsMessage()), Connection()) == Options()
    expected = Startup({"CQL_VERSION": "3.4.5", "DRIVER_NAME": "d"})
    assert request(startup, Connection()) == expected
    authenticating = Connection(State.AUTHENTICATING)
    assert request(login, authenticating) == AuthResponse(b"\0user\0password")
    assert request(register) == Register(("TOPOLOGY_CHANGE", "SCHEMA_CHANGE"))


@pytest.mark.parametrize("version", [3, 4])
def test_a_query_with_all_options_is_understood(version: int) -> None:
    """Page size, paging state, both consistencies and the timestamp are decoded."""
    message = QueryMessage(
        "SELECT é",
        ConsistencyLevel.QUORUM,
        serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
        fetch_size=50,
        paging_state=b"state",
        timestamp=5,
    )
    message.query_params = [b"1", None]
    assert request(driver_frame(message, version)) == Query(
        "SELECT é",
        [b"1", None],
        QueryOptions(
            consistency=4,
            serial_consistency=9,
            page_size=50,
            paging_state=b"state",
            timestamp=5,
        ),
    )


def test_an_execution_with_unset_values_is_understood() -> None:
    """Bound values may be bytes, null or unset."""
    message = ExecuteMessage(b"id", [b"", None, UNSET_VALUE], ConsistencyLevel.ONE)
    expected = Execute(b"id", [b"", None, UNSET], QueryOptions())
    assert request(driver_frame(message)) == expected


def test_the_metadata_of_a_result_may_be_declined() -> None:
    """A client that knows a prepared statement's columns can request rows without metadata."""
    body = b"\0\x02id" + b"\0\x01" + b"\x02"
    expected = Execute(b"id", [], QueryOptions(), skip_metadata=True)
    assert request(frame(Opcode.EXECUTE, body)) == expected


def test_a_negative_length_is_null_in_version_3() -> None:
    """Before protocol version 4, any negative length means null, and "not set" does not exist."""
    body = b"\0\x02id" + b"\0\x01" + b"\x01" + b"\0\x01" + b"\xff\xff\xff\xfe"
    assert request(frame(Opcode.EXECUTE, body, version=3)) == Execute(b"id", [None], QueryOptions())


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


def test_a_prepare_is_understood() -> None:
    """A PREPARE is decoded to the text of its statement."""
    assert request(driver_frame(PrepareMessage("SELECT"))) == Prepare("SELECT")


def test_a_custom_payload_is_passed_over() -> None:
    """A custom payload before the body is ignored."""
    body = b"\0\x01" + b"\0\x01k" + b"\0\0\0\x01v" + b"\0\0\0\x01q"
    assert request(frame(Opcode.PREPARE, body, flags=0x04)) == Prepare("q")


@pytest.mark.parametrize("version", [5, 66])
def test_an_unknown_version_is_answered_with_the_supported_one(version: int) -> None:
    """A frame with an unknown version gets the recorded response and closes the connection."""
    connection = Connection()
    (call,) = connection.receive(frame(Opcode.OPTIONS, stream=9, version=version) * 2)
    assert isinstance(call.request, CqlError)
    answer = responses.error(call.request).frame(call.version, call.stream)
    expected = recorded(f"OPTIONS in protocol version {version}")
    assert answer.hex().startswith(expected["header"])
    assert answer[HEADER.size :] == base64.b64decode(expected["body"])
    assert connection.state is State.CLOSED


@pytest.mark.parametrize(
    ("name", "opcode", "body"),
    [("opcode 0x99", 0x99, b""), ("QUERY truncated body", Opcode.QUERY, b"\0\0")],
)
def test_a_malformed_frame_is_answered_as_recorded(name: str, opcode: int, body: bytes) -> None:
    """A malformed request is rejected with the recorded error, and the connection stays open."""
    connection = ready()
    error = request(frame(opcode, body), connection)
    assert responses.error(error).body == base64.b64decode(recorded(name)["body"])
    assert request(frame(Opcode.OPTIONS), connection) == Options()


def test_a_body_of_more_than_256_mib_is_refused() -> None:
    """A header that announces too large a body is rejected, and the connection is closed."""
    connection = ready()
    header = HEADER.pack(4, 0, 1, Opcode.QUERY, MAX_BODY + 1)
    assert isinstance(request(header, connection), ProtocolError)
    assert connection.state is State.CLOSED


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


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 300)))
def test_frames_may_arrive_in_any_pieces(texts: list[bytes], cuts: list[int]) -> None:
    """The decoded requests do not depend on how the bytes are split among reads."""
    data = b"".join(
        frame(Opcode.PREPARE, len(t).to_bytes(4, "big") + t, stream)
        for stream, t in enumerate(texts)
    )
    whole = [(call.stream, repr(call.request)) for call in ready().receive(data)]
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    connection = ready()
    chopped = [
        (call.stream, repr(call.request))
        for start, end in pairwise(places)
        for call in connection.receive(data[start:end])
    ]
    assert chopped == whole
