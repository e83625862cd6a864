"""A minimal CQL client, which sends the requests that recordings describe."""

from __future__ import annotations

import socket
import struct

from attrs import define, field, frozen

QUERY, PREPARE, EXECUTE, BATCH, REGISTER, OPTIONS, STARTUP = 7, 9, 10, 13, 11, 5, 1
ERROR, SUPPORTED, RESULT, EVENT = 0, 6, 8, 12
ONE = 1


@frozen
class Answer:
    """A received frame: header fields and body."""

    version: int
    flags: int
    opcode: int
    body: bytes


RECORDED = b"resp"
"""The keyspace in recorded requests."""


@define
class Client:
    """Sends one request at a time over a socket.

    `keyspace` replaces the name `resp` in requests, and `resp` replaces `keyspace` in responses.
    Both names must have the same length.
    """

    connection: socket.socket
    events: list[bytes] = field(factory=list)
    keyspace: bytes = RECORDED

    def another(self) -> socket.socket:
        """Open another connection to the same server."""
        return socket.create_connection(self.connection.getpeername(), timeout=120)

    def send(self, opcode: int, body: bytes, version: int = 4) -> Answer:
        """Send a request and return its response. Add events received before it to `events`."""
        body = body.replace(RECORDED, self.keyspace)
        self.connection.sendall(struct.pack(">BBhBI", version, 0, 1, opcode, len(body)) + body)
        while (answer := self.receive()).opcode == EVENT:
            self.events.append(answer.body)
        return answer

    def receive(self) -> Answer:
        """Receive and return the next frame."""
        version, flags, _, opcode, size = struct.unpack(">BBhBI", self.read(9))
        body = self.read(size).replace(self.keyspace, RECORDED)
        return Answer(version, flags, opcode, body)

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes."""
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
    """Encode the consistency, flags and bound values of a QUERY or EXECUTE."""
    encoded = b"".join(
        b"\xff\xff\xff\xff" if c is None else struct.pack(">I", len(c)) + c for c in cells
    )
    return struct.pack(">HBH", ONE, 0x01, len(cells)) + encoded


def query(cql: str) -> bytes:
    """Return the body of a QUERY without values or paging."""
    return long_text(cql) + struct.pack(">HB", ONE, 0)


def prepared_id(client: Client, cql: str) -> bytes:
    """Prepare a statement and return its id."""
    body = client.send(PREPARE, long_text(cql)).body
    return body[6 : 6 + struct.unpack(">H", body[4:6])[0]]


def ask(client: Client, request: str) -> Answer:
    """Send the request that a recording describes, and return the response."""
    verb, _, rest = request.partition(" ")
    if verb == "OPTIONS":
        # The server closes the connection after an unknown version, so use a new one.
        with client.another() as other:
            return Client(other).send(OPTIONS, b"", int(rest.split()[-1]))
    return client.send(*message(client, verb, rest))


def message(client: Client, verb: str, rest: str) -> tuple[int, bytes]:
    """Return the opcode and body of a request."""
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
        return QUERY, long_text(rest) + struct.pack(">HBI", ONE, 0x04, 1)  # page size: one row
    if rest == "truncated body":
        return QUERY, b"\x00\x00"
    if rest == "unknown id":
        return EXECUTE, text("0123456789abcdef") + values()
    if verb == "EXECUTE":
        statement = prepared_id(client, "SELECT * FROM resp.t WHERE pk = ?")
        return EXECUTE, struct.pack(">H", 16) + statement + execute_options(rest)
    return fixed[verb]


def execute_options(described: str) -> bytes:
    """Return the options of an EXECUTE, as the recording describes them."""
    one = struct.pack(">i", 1)
    if "skip metadata" in described:
        return struct.pack(">HBHI", ONE, 0x03, 1, 4) + one
    if "no values" in described:
        return struct.pack(">HB", ONE, 0)
    return values(b"\x00\x01") if "wrong size" in described else values(None)


def batch(described: str) -> bytes:
    """Return the body of a BATCH with two statements, as the recording describes it."""
    statements = ["INSERT INTO resp.t (pk, ck) VALUES (7, 1)"]
    statements.append(
        "SELECT * FROM resp.t"
        if "select" in described
        else "INSERT INTO resp.t (pk, ck) VALUES (7, 2)"
    )
    kind = 1 if described.startswith("unlogged") else 0
    parts = b"".join(b"\x00" + long_text(cql) + b"\x00\x00" for cql in statements)
    return struct.pack(">BH", kind, len(statements)) + parts + struct.pack(">HB", ONE, 0)
