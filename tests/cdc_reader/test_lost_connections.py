"""Reading over a line that is cut, again and again, in the middle of its work."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from cdc_reader import CdcReader, ConnectionConfig, ReadConfig

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

COUNT = 300


class Line:
    """Forwards what is sent to its port to a server; when cut, new connections still can."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def contact_point(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def cut(self) -> None:
        """Break all connections, in the middle of whatever they carry."""
        for end in list(self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        while self._threads:
            self._threads.pop().join()
        for end in (self._listener, *self._ends):
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._ends |= {client, server}
                self._start(self._forward, client, server)
                self._start(self._forward, server, client)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()


@pytest.fixture
def line(scylla: Scylla) -> Iterator[Line]:
    """A line to the server under test."""
    line = Line((scylla.host, scylla.port))
    yield line
    line.close()


@pytest.fixture
def table(scylla: Scylla, keyspace: str) -> str:
    """A keyspace whose table `t` has had 300 rows inserted."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (p int, c int, PRIMARY KEY (p, c)) "
        "WITH cdc = {'enabled': true}"
    )
    insert = scylla.session.prepare(f"INSERT INTO {keyspace}.t (p, c) VALUES (?, ?)")
    for number in range(COUNT):
        scylla.session.execute(insert, (number % 10, number))
    return keyspace


@pytest.mark.needs("faults")
def test_a_line_cut_in_the_middle_loses_and_repeats_nothing(
    way: ConnectionConfig, line: Line, table: str
) -> None:
    """Each page is asked for again from its own paging state, once the line is back."""
    config = ReadConfig(fetch_size=10, chunk_size=8, in_flight=2)
    found: list[int] = []
    cuts = [20, 90, 200]
    with CdcReader(
        evolve(way, contact_points=line.contact_point), f"{table}.t", config=config
    ) as it:
        for batch in it.batches():
            found += batch.column("c").to_pylist()
            if cuts and len(found) > cuts[0]:
                cuts.pop(0)
                line.cut()
    assert not cuts
    assert sorted(found) == list(range(COUNT))
