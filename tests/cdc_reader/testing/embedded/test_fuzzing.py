"""Tests that any bytes get a response or close their connection, without affecting other clients.

`SCYLLA_CDC_FUZZ` sets the number of frames (2,000 if unset), and `SCYLLA_CDC_FUZZ_SEED` sets
the seed.
"""

import logging
import os
import random
import re
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from attrs import define, field
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.embedded.errors import CqlError, InvalidSyntax
from cdc_reader.testing.embedded.grammar.parser import parse
from cdc_reader.testing.embedded.protocol.compression import compressions
from cdc_reader.testing.embedded.protocol.frame import HEADER, Flag, Opcode

FRAMES = int(os.environ.get("SCYLLA_CDC_FUZZ", "2000"))
SEED = int(os.environ.get("SCYLLA_CDC_FUZZ_SEED", "1"))
PER_CONNECTION = 50

# Each statement starts on an unindented line. Indented lines continue it.
STATEMENTS = re.split(
    r"\n(?! )",
    """
SELECT * FROM f.t WHERE pk = ? AND ck >= ? ORDER BY ck DESC LIMIT 3 ALLOW FILTERING
SELECT count(*), max(v), writetime(v), ttl(v), token(pk), CAST(ck AS text) FROM f.t
SELECT DISTINCT pk FROM f.t WHERE token(pk) > -1 AND token(pk) <= 9 PER PARTITION LIMIT 1
SELECT JSON pk, m['k'], u.a, l FROM f.t_scylla_cdc_log WHERE "cdc$stream_id" IN (0x00, 0x01)
INSERT INTO f.t (pk, ck, v, m, s, l, u) VALUES (1, 2, 'x', {'a': 1}, {1, 2}, [1.5], {a: 1})
  USING TTL 9
INSERT INTO f.t JSON '{"pk": 1, "ck": 2, "v": "\\u00e9", "m": {"a": null}}'
UPDATE f.t USING TTL 5 SET v = null, m['b'] = 2, s = s + {3}, l = [0.5] + l
  WHERE pk = 1 AND ck = 2 IF v = 'x'
DELETE m['a'], u.b FROM f.t USING TIMESTAMP 5 WHERE pk IN (1, 2) AND ck = 3
BEGIN UNLOGGED BATCH INSERT INTO f.t (pk, ck) VALUES (1, 1);
  DELETE FROM f.t WHERE pk = 2; APPLY BATCH
CREATE TABLE f.n (a uuid, b frozen<map<text, tuple<int, blob>>>, PRIMARY KEY ((a), b))
  WITH cdc = {'enabled': true}
ALTER TABLE f.t ADD w duration
CREATE TYPE f.w (a int, b frozen<set<timeuuid>>)
CREATE KEYSPACE g WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}
  AND tablets = {'enabled': true}
DROP TABLE IF EXISTS f.n
TRUNCATE f.t
USE f
""".strip(),
)
SCHEMA = (
    """CREATE KEYSPACE IF NOT EXISTS f
    WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}""",
    "CREATE TYPE IF NOT EXISTS f.u (a int, b text)",
    """CREATE TABLE IF NOT EXISTS f.t (pk int, ck int, v text, m map<text, int>, s set<int>,
    l list<double>, u u, PRIMARY KEY (pk, ck))
    WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}""",
)
PREPARED = (
    *STATEMENTS[:9],
    "SELECT * FROM f.t WHERE pk = ? AND ck IN ? LIMIT ?",
    "INSERT INTO f.t (pk, ck, v, m, s, l, u) VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ?",
    "UPDATE f.t USING TIMESTAMP ? SET m[?] = ?, s = s - ?, l = ? WHERE pk = ? AND ck IN ?",
    "DELETE FROM f.t WHERE pk = ? AND ck > ?",
    "SELECT * FROM f.t WHERE token(pk) > ? AND token(pk) <= ?",
)
WORDS = sorted({word for cql in STATEMENTS for word in re.findall(r"\w+|[^\w\s]", cql)})


@define
class Fuzzer:
    """A generator of valid, damaged and random frames."""

    source: random.Random
    prepared: list[tuple[bytes, int]] = field(factory=list)
    """Pairs (id, number of values) of prepared statements."""

    def volley(self, count: int) -> list[bytes]:
        """Return frames for one connection. The last frame may close the connection."""
        frames = [self.frame() for _ in range(count)]
        if self.source.random() < 0.5:
            frames[-1] = self._mutated(frames[-1])
        elif self.source.random() < 0.2:
            frames[-1] = self.source.randbytes(self.source.randrange(40))
        return frames

    def frame(self) -> bytes:
        """Return a frame whose length is valid, but whose contents may be damaged."""
        opcode, body = self._request()
        flags, version = 0, self.source.choice((3, 4, 4, 4, 4))
        if self.source.random() < 0.05:
            flags = self.source.choice((*Flag, 0xFF, self.source.randrange(256)))
        if flags & Flag.COMPRESSION and self.source.random() < 0.7:
            body = self.source.choice([*compressions().values()]).compress(body)
        if self.source.random() < 0.15:
            body = self._mutated(body)
        stream = self.source.randrange(128)
        return HEADER.pack(version, flags, stream, opcode, len(body)) + body

    def cql(self) -> str:
        """Return a valid statement, a damaged one, or random words."""
        text = self.source.choice(STATEMENTS)
        match self.source.random():
            case chance if chance < 0.4:
                return text
            case chance if chance < 0.7:
                words = re.findall(r"\s+|\w+|[^\w\s]", text)
                for _ in range(self.source.randrange(1, 4)):
                    words[self.source.randrange(len(words))] = self.source.choice(WORDS)
                return "".join(words)
            case chance if chance < 0.9:
                return self._mutated(text.encode()).decode("latin-1")
            case _:
                return " ".join(self.source.choices(WORDS, k=self.source.randrange(30)))

    def _request(self) -> tuple[int, bytes]:
        source = self.source
        match source.randrange(10):
            case 0 | 1 | 2 | 3:
                return Opcode.QUERY, long_text(self.cql()) + self._parameters()
            case 4 | 5:
                return Opcode.PREPARE, long_text(self.cql())
            case 6 | 7:
                statement, count = source.choice([*self.prepared, (source.randbytes(16), 1)])
                return Opcode.EXECUTE, b"\0\x10" + statement + self._parameters(count)
            case 8:
                count = source.randrange(4)
                parts = (b"\0" + long_text(self.cql()) + self._values() for _ in range(count))
                kind = bytes([source.randrange(4), 0, count])
                return Opcode.BATCH, kind + b"".join(parts) + self._consistency() + b"\0"
            case _:
                opcode = source.choice((*Opcode, source.randrange(256)))
                return opcode, source.randbytes(source.randrange(60))

    def _parameters(self, count: int = 0) -> bytes:
        source, flags = self.source, self.source.choice((0, 1, 1, 1, 5, 0x3F, 0xFF))
        tail = self._values(count) if flags & 1 else b""
        if flags & 4:
            tail += source.randrange(-1, 50).to_bytes(4, "big", signed=True)
        return self._consistency() + bytes([flags]) + tail + source.randbytes(flags // 16)

    def _values(self, count: int = 0) -> bytes:
        source = self.source
        if source.random() < 0.1:
            count = source.randrange(6)
        cells = (source.randbytes(source.choice((0, 1, 4, 4, 4, 8, 16, 30))) for _ in range(count))
        encoded = (
            source.choice((b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe"))
            if source.random() < 0.1
            else len(cell).to_bytes(4, "big") + cell
            for cell in cells
        )
        return count.to_bytes(2, "big") + b"".join(encoded)

    def _consistency(self) -> bytes:
        return self.source.choice((*[1] * 20, 4, 8, 10, 11, 65535)).to_bytes(2, "big")

    def _mutated(self, raw: bytes) -> bytes:
        mutated = bytearray(raw)
        for _ in range(self.source.randrange(1, 6)):
            place = self.source.randrange(len(mutated) + 1)
            match self.source.randrange(3):
                case 0:
                    mutated[place : place + 1] = self.source.randbytes(1)
                case 1:
                    del mutated[place : place + self.source.randrange(1, 8)]
                case _:
                    mutated[place:place] = self.source.randbytes(self.source.randrange(1, 8))
        return bytes(mutated)


def long_text(cql: str) -> bytes:
    """Encode a [long string]."""
    raw = cql.encode(errors="replace")
    return len(raw).to_bytes(4, "big") + raw


def startup(compression: str | None) -> bytes:
    """Return a STARTUP frame."""
    options = {"CQL_VERSION": "3.3.1"}
    if compression:
        options["COMPRESSION"] = compression
    texts = (text.encode() for pair in options.items() for text in pair)
    body = bytes([0, len(options)]) + b"".join(len(t).to_bytes(2, "big") + t for t in texts)
    return HEADER.pack(4, 0, 0, Opcode.STARTUP, len(body)) + body


def statement(cql: str, opcode: int = Opcode.QUERY) -> bytes:
    """Return a QUERY or PREPARE frame."""
    body = long_text(cql) + (b"\0\1\0" if opcode == Opcode.QUERY else b"")
    return HEADER.pack(4, 0, 0, opcode, len(body)) + body


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """The server under test."""
    with EmbeddedScylla() as server:
        yield server


def connect(server: EmbeddedScylla, compression: str | None = None) -> socket.socket:
    """Open a connection, with a timeout, and complete its handshake."""
    connection = socket.create_connection((server.host, server.port), timeout=120)
    ask(connection, startup(compression))
    return connection


def ask(connection: socket.socket, frame: bytes) -> tuple[int, bytes]:
    """Send a frame, and return (opcode, body) of the response."""
    connection.sendall(frame)
    _, _, _, opcode, size = HEADER.unpack(read(connection, HEADER.size))
    return opcode, read(connection, size)


def read(connection: socket.socket, size: int) -> bytes:
    """Read exactly `size` bytes."""
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        assert chunk, "the server closed a connection that was none of the matter"
        data += chunk
    return data


def set_up(witness: socket.socket) -> list[tuple[bytes, int]]:
    """Create the tables, and return prepared statements for a fuzzer."""
    for cql in SCHEMA:
        ask(witness, statement(cql))
    prepared = (ask(witness, statement(cql, Opcode.PREPARE)) for cql in PREPARED)
    return [
        (body[6:22], int.from_bytes(body[26:30], "big"))
        for opcode, body in prepared
        if opcode == Opcode.RESULT
    ]


def fire(server: EmbeddedScylla, frames: list[bytes], compression: str | None) -> int:
    """Send frames on a new connection, and return the number of responses until it is closed."""
    answers = bytearray()
    with connect(server, compression) as connection, suppress(ConnectionError):
        connection.sendall(b"".join(frames))
        connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(1 << 16):
            answers += data
    return count_frames(answers)


def count_frames(data: bytearray) -> int:
    """Return the number of complete frames in `data`, whatever their bodies."""
    count = place = 0
    while place + HEADER.size <= len(data):
        place += HEADER.size + HEADER.unpack_from(data, place)[4]
        count += 1
    return count


def test_no_bytes_crash_the_server_or_hang_another_connection(
    server: EmbeddedScylla, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes of any kind close at most the connection on which they are sent.

    Another client always gets responses, and no bug is logged.
    """
    source = random.Random(SEED)
    fuzzer, answered = Fuzzer(source), 0
    with connect(server) as witness, caplog.at_level(logging.ERROR, "cdc_reader"):
        for sent in range(0, FRAMES, PER_CONNECTION):
            if sent % 5_000 == 0:
                fuzzer.prepared = set_up(witness)
            volley = fuzzer.volley(min(PER_CONNECTION, FRAMES - sent))
            answered += fire(server, volley, source.choice([None, *compressions()]))
            opcode, _ = ask(witness, statement("SELECT key FROM system.local"))
            assert opcode == Opcode.RESULT, f"after frame {sent} of seed {SEED}"
    assert not caplog.records, caplog.text[:5_000]
    assert answered > 0.9 * FRAMES, "too few frames were answered to prove anything"


def refusal(cql: str) -> str | None:
    """Return the syntax error of a text, or None if the text is a statement.

    For other errors, such as a value that its type cannot hold, the result is also None.
    """
    try:
        parse(cql)
    except InvalidSyntax as error:
        return error.message
    except CqlError:
        return None
    return None


def check(cql: str) -> None:
    """Check that a syntax error has a position, unless ScyllaDB's error has none."""
    message = refusal(cql)
    without_position = r"Only expressions of the form |Only COUNT\(1\) is supported"
    assert message is None or re.match(rf"line \d+:\d+ |{without_position}", message)


@given(st.text())
@example("UPDATE t SET a = b + 1 WHERE k = 1")
@example("SELECT WRITETIME(0) FROM t")
@example("SELECT")
@example("")
@example("\0")
@example("SELECT * FROM t WHERE a = " + "(" * 5_000)
@example("SELECT * FROM t WHERE a = " + "[" * 5_000 + "]" * 5_000)
@example("CREATE TABLE t (a " + "list<" * 5_000 + "int" + ">" * 5_000 + " PRIMARY KEY)")
def test_any_text_is_a_statement_or_a_syntax_error(cql: str) -> None:
    """Any text is parsed, or rejected with the position of the error."""
    check(cql)


@given(st.lists(st.sampled_from(WORDS)).map(" ".join))
def test_any_words_are_a_statement_or_a_syntax_error(cql: str) -> None:
    """CQL words in any order are parsed, or rejected with the position of the error."""
    check(cql)


@given(st.randoms(use_true_random=False))
def test_a_damaged_statement_is_a_statement_or_a_syntax_error(source: random.Random) -> None:
    """A damaged statement is parsed, or rejected with the position of the error."""
    check(Fuzzer(source).cql())
