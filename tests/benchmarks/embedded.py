"""Measures the embedded ScyllaDB: writes with images, log rows, and replayed pages.

Run it as ``python -m tests.benchmarks.embedded [repetitions]``. The server runs in a separate
process. The client sends frames over one socket and does not parse the responses, so that only the
server is measured. Each result is the median of its repetitions.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from attrs import define

from cdc_reader.testing import EmbeddedScylla

TARGETS = {
    "writes a second": 2_000,
    "log rows a second": 60_000,
    "replayed MB a second": 250,
}
WRITES, IN_FLIGHT = 4_000, 32
LOG_ROWS, PAGE_ROWS = 60_000, 5_000
REPLAYED_PAGES, PAGE_BYTES = 1_000, 1 << 20

STARTUP, QUERY, PREPARE, EXECUTE = 1, 7, 9, 10
ONE = 1
HEADER = struct.Struct(">BBhBI")


@define
class Client:
    """Sends and receives frames over one socket."""

    connection: socket.socket
    _received: bytearray

    @classmethod
    def to(cls, port: int) -> Client:
        client = cls(socket.create_connection(("127.0.0.1", port)), bytearray(4 << 20))
        client.ask(STARTUP, b"\0\1" + text("CQL_VERSION") + text("3.3.1"))
        return client

    def send(self, opcode: int, body: bytes) -> None:
        self.connection.sendall(HEADER.pack(4, 0, 1, opcode, len(body)) + body)

    def receive(self) -> memoryview:
        """Return the body of the next response, valid until the next call."""
        opcode, size = HEADER.unpack(self._read(HEADER.size))[3:]
        body = self._read(size)
        assert opcode != 0, bytes(body)
        return body

    def ask(self, opcode: int, body: bytes) -> memoryview:
        self.send(opcode, body)
        return self.receive()

    def query(self, cql: str) -> None:
        self.ask(QUERY, long_text(cql) + struct.pack(">HB", ONE, 0))

    def prepare(self, cql: str) -> bytes:
        body = self.ask(PREPARE, long_text(cql))
        return bytes(body[4 : 6 + int.from_bytes(body[4:6], "big")])

    def _read(self, size: int) -> memoryview:
        whole, got = memoryview(self._received)[:size], 0
        while got < size:
            count = self.connection.recv_into(whole[got:])
            assert count, "the server closed the connection"
            got += count
        return whole


def text(value: str) -> bytes:
    """Encode a [string]."""
    return len(value).to_bytes(2, "big") + value.encode()


def long_text(value: str) -> bytes:
    """Encode a [long string]."""
    return len(value).to_bytes(4, "big") + value.encode()


def execute(statement: bytes, *cells: bytes) -> bytes:
    """Return the body of an EXECUTE request with these values."""
    values = b"".join(len(cell).to_bytes(4, "big") + cell for cell in cells)
    return statement + struct.pack(">HBH", ONE, 0x01, len(cells)) + values


def writes(client: Client) -> float:
    """Return the number of UPDATEs per second, each of one row with images, with 32 in flight."""
    client.query("TRUNCATE ks.t_scylla_cdc_log")
    statement = client.prepare("UPDATE ks.t SET a = ?, b = ? WHERE pk = ? AND ck = ?")
    bodies = (
        execute(statement, b"value %d" % n, n.to_bytes(4, "big"), b"key %d" % (n % 100), bytes(8))
        for n in range(WRITES)
    )
    start = time.perf_counter()
    for number, body in enumerate(bodies):
        if number >= IN_FLIGHT:
            client.receive()
        client.send(EXECUTE, body)
    for _ in range(IN_FLIGHT):
        client.receive()
    return WRITES / (time.perf_counter() - start)


def log_rows(client: Client) -> float:
    """Return the number of log rows read per second, page by page."""
    statement = client.prepare("SELECT * FROM ks.imaged_scylla_cdc_log")
    start = time.perf_counter()
    rows = sum(size for size, _ in pages(client, statement, PAGE_ROWS))
    seconds = time.perf_counter() - start
    assert rows == LOG_ROWS, rows
    return rows / seconds


def replayed(client: Client) -> float:
    """Return the number of megabytes of replayed pages that are read per second."""
    statement = client.prepare("SELECT * FROM ks.replayed")
    start = time.perf_counter()
    size = sum(size for _, size in pages(client, statement, PAGE_ROWS))
    return size / (time.perf_counter() - start) / 1e6


def pages(client: Client, statement: bytes, page_rows: int) -> Iterator[tuple[int, int]]:
    """Yield (rows, bytes) for each page. If the page contains metadata, `rows` is 0."""
    options, state = struct.pack(">HBI", ONE, 0x02 | 0x04, page_rows), b""
    while True:
        body = client.ask(EXECUTE, statement + options + state)
        flags, _, size = struct.unpack_from(">III", body, 4)
        more, skipped = flags & 0x02, flags & 0x04
        count = body[16 + size if more else 12 :][:4] if skipped else b""
        rows = int.from_bytes(count, "big")
        yield rows, len(body)
        if not more:
            return
        state = struct.pack(">I", size) + bytes(body[16 : 16 + size])
        options = struct.pack(">HBI", ONE, 0x02 | 0x04 | 0x08, page_rows)


def fill(client: Client) -> None:
    """Create and fill the tables to measure."""
    client.query(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    client.query(
        "CREATE TABLE ks.t (pk text, ck bigint, a text, b int, c map<text, int>, "
        "PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'preimage': true, 'postimage': true}"
    )
    client.query(
        "CREATE TABLE ks.imaged (pk text, ck bigint, a text, b int, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true}"
    )
    statement = client.prepare("INSERT INTO ks.imaged (pk, ck, a, b) VALUES (?, ?, ?, ?)")
    for n in range(LOG_ROWS):
        row = (b"key %d" % (n % 500), n.to_bytes(8, "big"), b"some text %d" % n, bytes(4))
        client.ask(EXECUTE, execute(statement, *row))
    client.query("CREATE TABLE ks.replayed (pk int, ck int, v blob, PRIMARY KEY (pk, ck))")
    statement = client.prepare("INSERT INTO ks.replayed (pk, ck, v) VALUES (?, ?, ?)")
    for n in range(PAGE_BYTES // 1024):
        client.ask(EXECUTE, execute(statement, bytes(4), n.to_bytes(4, "big"), bytes(1024)))


def serve(parent: Connection) -> None:
    """Run the server: send its port, replay a table once it is filled, and stop on request."""
    with EmbeddedScylla() as scylla:
        parent.send(scylla.port)
        parent.recv()
        scylla.replay("ks", "replayed", scylla.pages("SELECT * FROM ks.replayed"), REPLAYED_PAGES)
        parent.send(None)
        parent.recv()


@contextmanager
def server() -> Iterator[Client]:
    """Yield a client of a server whose tables have been filled."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    process.start()
    try:
        client = Client.to(ours.recv())
        fill(client)
        ours.send(None)
        ours.recv()
        yield client
        ours.send(None)
    finally:
        process.join(10)
        process.kill()


MEASURES: dict[str, Callable[[Client], float]] = dict(
    zip(TARGETS, (writes, log_rows, replayed), strict=True)
)


def main() -> int:
    """Print each median, its target and the machine's load. Return 1 if a target is missed."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    missed = False
    with server() as client:
        for name, measure in MEASURES.items():
            found = [measure(client) for _ in range(repetitions)]
            median = statistics.median(found)
            missed |= median < TARGETS[name]
            spread = f"{min(found):,.0f} to {max(found):,.0f}"
            print(f"{name:24}{median:>12,.0f}   target {TARGETS[name]:>8,}   ({spread})")
    one, five, _ = os.getloadavg()
    print(f"load {one:.1f} (1 min), {five:.1f} (5 min), {os.cpu_count()} processors")
    return missed


if __name__ == "__main__":
    sys.exit(main())
