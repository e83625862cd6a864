"""The raw answers to 88 requests equal those recorded from a real ScyllaDB 5.2.

The tests compare opcode, flags, kind, metadata, error code and text. Ids, times, tokens and paging
states differ between runs of the real server too. `DIFFERENT` lists the answers that differ here,
with the reason.
"""

import base64
import gzip
import json
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, frozen

from cdc_reader.testing import EmbeddedScylla
from tests.drivers import read_result

DATA = Path(__file__).parents[3] / "data"
QUERY, PREPARE, EXECUTE, BATCH, REGISTER, OPTIONS, STARTUP = 7, 9, 10, 13, 11, 5, 1
ERROR, SUPPORTED, RESULT, EVENT = 0, 6, 8, 12
ONE = 1

DIFFERENT = {
    "QUERY CREATE INDEX i ON t (a)": "secondary indexes are not simulated",
    "QUERY DROP INDEX i": "secondary indexes are not simulated",
    "QUERY CREATE MATERIALIZED VIEW mv AS SELECT * FROM t WHERE pk IS NOT NULL AND ck IS NOT NULL "
    "PRIMARY KEY (ck, pk)": "materialized views are not simulated",
    "QUERY DROP MATERIALIZED VIEW mv": "materialized views are not simulated",
    "QUERY LIST ROLES": "roles are not simulated",
}


def recorded() -> Any:
    """Return the recorded requests and answers."""
    with gzip.open(DATA / "scylla-5.2-responses.json.gz", "rt") as file:
        return json.load(file)


@frozen
class Answer:
    """A received frame: header fields and body."""

    version: int
    flags: int
    opcode: int
    body: bytes


@define
class Client:
    """A minimal client: frames over one socket, one request at a time."""

    connection: socket.socket
    events: list[bytes]

    def another(self) -> socket.socket:
        """Open another connection to the same server."""
        return socket.create_connection(self.connection.getpeername(), timeout=20)

    def send(self, opcode: int, body: bytes, version: int = 4) -> Answer:
        """Return the answer to one request; earlier events are kept."""
        self.connection.sendall(struct.pack(">BBhBI", version, 0, 1, opcode, len(body)) + body)
        while (answer := self.receive()).opcode == EVENT:
            self.events.append(answer.body)
        return answer

    def receive(self) -> Answer:
        """Return the next frame."""
        version, flags, _, opcode, size = struct.unpack(">BBhBI", self.read(9))
        return Answer(version, flags, opcode, self.read(size))

    def read(self, size: int) -> bytes:
        """Read exactly this many bytes."""
        data = b""
        while len(data) < size:
            chunk = self.connection.recv(size - len(data))
            assert chunk, "the server closed the connection"
            data += chunk
        return data


def text(value: str) -> bytes:
    """Encode a [string]."""
    return struct.pack(">H", len(value.encode())) + value.encode()


def long_text(value: str) -> bytes:
    """Encode a [long string]."""
    return struct.pack(">I", len(value.encode())) + value.encode()


def values(*cells: bytes | None) -> bytes:
    """Encode consistency, flags and bound values of a QUERY or EXECUTE."""
    encoded = b"".join(
        b"\xff\xff\xff\xff" if c is None else struct.pack(">I", len(c)) + c for c in cells
    )
    return struct.pack(">HBH", ONE, 0x01, len(cells)) + encoded


def query(cql: str) -> bytes:
    """Return the body of a QUERY without values or paging."""
    return long_text(cql) + struct.pack(">HB", ONE, 0)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A minimal client of a server that behaves like the recorded version."""
    with (
        EmbeddedScylla(version="5.2") as server,
        socket.create_connection((server.host, server.port)) as connection,
    ):
        connection.settimeout(20)
        yield Client(connection, [])


def prepared_id(client: Client, cql: str) -> bytes:
    """Return the id of a prepared statement."""
    body = client.send(PREPARE, long_text(cql)).body
    return body[6 : 6 + struct.unpack(">H", body[4:6])[0]]


def ask(client: Client, request: str) -> Answer:
    """Send the request that a recording describes."""
    verb, _, rest = request.partition(" ")
    if verb == "OPTIONS":
        # An unknown version ends the connection, so each of these has its own.
        with client.another() as other:
            return Client(other, []).send(OPTIONS, b"", int(rest.split()[-1]))
    return client.send(*message(client, verb, rest))


def message(client: Client, verb: str, rest: str) -> tuple[int, bytes]:
    """Return opcode and body of a request."""
    kinds = ("TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE")
    fixed = {
        "STARTUP": (STARTUP, b"\x00\x01" + text("CQL_VERSION") + text("3.3.1")),
        "REGISTER": (REGISTER, b"\x00\x03" + b"".join(map(text, kinds))),
        "opcode": (0x99, b""),
        "BATCH": (BATCH, batch(rest)),
        "PREPARE": (PREPARE, long_text(rest)),
        "QUERY": (QUERY, query(rest)),
    }
    if verb == "QUERY" and rest == "SELECT * FROM resp.t":
        return QUERY, long_text(rest) + struct.pack(">HBI", ONE, 0x04, 1)  # a page of one row
    if rest == "truncated body":
        return QUERY, b"\x00\x00"
    if rest == "unknown id":
        return EXECUTE, text("0123456789abcdef") + values()
    if verb == "EXECUTE":
        statement = prepared_id(client, "SELECT * FROM resp.t WHERE pk = ?")
        return EXECUTE, struct.pack(">H", 16) + statement + execute_options(rest)
    return fixed[verb]


def execute_options(described: str) -> bytes:
    """Return the options of an EXECUTE from the recording's words in brackets."""
    one = struct.pack(">i", 1)
    if "skip metadata" in described:
        return struct.pack(">HBHI", ONE, 0x03, 1, 4) + one
    if "no values" in described:
        return struct.pack(">HB", ONE, 0)
    return values(b"\x00\x01") if "wrong size" in described else values(None)


def batch(described: str) -> bytes:
    """Return a BATCH of two statements, logged or not, one of which may be a SELECT."""
    statements = ["INSERT INTO resp.t (pk, ck) VALUES (7, 1)"]
    statements.append(
        "SELECT * FROM resp.t"
        if "select" in described
        else "INSERT INTO resp.t (pk, ck) VALUES (7, 2)"
    )
    kind = 1 if described.startswith("unlogged") else 0
    parts = b"".join(b"\x00" + long_text(cql) + b"\x00\x00" for cql in statements)
    return struct.pack(">BH", kind, len(statements)) + parts + struct.pack(">HB", ONE, 0)


def comparable(answer: Answer) -> object:
    """Return the parts of an answer that are the same in every run."""
    body = answer.body
    warnings: list[str] = []
    if answer.flags & 0x08:
        count, body = struct.unpack(">H", body[:2])[0], body[2:]
        for _ in range(count):
            size = struct.unpack(">H", body[:2])[0]
            warnings.append(body[2 : 2 + size].decode())
            body = body[2 + size :]
    # Connections get a node's shards in turn.
    body = re.sub(rb"(SCYLLA_SHARD\x00\x01\x00\x01)\d", rb"\1?", body)
    if answer.opcode == SUPPORTED:  # the recorded server had no port for shard-aware clients
        body = re.sub(rb"\x00\x17SCYLLA_SHARD_AWARE_PORT\x00\x01\x00.\d+", b"", body[2:])
    if answer.opcode != RESULT:
        return answer.opcode, answer.flags, warnings, body
    result = read_result(body, [])
    return (
        answer.opcode,
        answer.flags,
        warnings,
        result.kind,
        columns(result.column_metadata),
        columns(result.bind_metadata),
        result.pk_indexes,
        result.schema_change_event,
        result.new_keyspace,
        len(result.parsed_rows) if result.parsed_rows is not None else None,
    )


def columns(metadata: Any) -> list[tuple[object, ...]]:
    """Return (keyspace, table, name, type) of each column."""
    return [(*column[:3], column[3].cql_parameterized_type()) for column in metadata or ()]


def test_raw_answers_repeat(client: Client) -> None:
    """Every answer has the recorded opcode, kind, metadata, error code and text.

    All requests form one conversation, because answers depend on earlier requests.
    """
    wrong = []
    for entry in recorded()["responses"]:
        request = entry["request"]
        answer = ask(client, request)
        if "header" in entry:
            version, flags, _, opcode, _ = struct.unpack(">BBhBI", bytes.fromhex(entry["header"]))
            expected = Answer(version, flags, opcode, base64.b64decode(entry["body"]))
        else:
            expected = Answer(
                0x84, entry["flags"], entry["opcode"], base64.b64decode(entry["body"])
            )
        if request in DIFFERENT:
            continue
        if comparable(expected) != comparable(answer):
            wrong.append(
                f"{request}\n  expected {comparable(expected)}\n  found    {comparable(answer)}"
            )
    assert not wrong, "\n".join(wrong)


def test_what_is_not_simulated_is_refused_with_the_reason(client: Client) -> None:
    """The error says that the statement is not supported."""
    for request in DIFFERENT:
        answer = ask(client, request)
        assert answer.opcode == ERROR
        assert b"is not supported by this server" in answer.body, answer.body
