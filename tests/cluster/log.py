"""A table whose changes are numbered, on an embedded ScyllaDB that all machines can reach."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field
from cassandra.cluster import Session

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session

ROWS = 50_000
"""Number of rows in the logs that are read on several machines."""
_KEYSPACE = (
    "CREATE KEYSPACE ks WITH replication = "
    "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
)
_TABLE = (
    "CREATE TABLE ks.t (pk int PRIMARY KEY, number int, note text) "
    "WITH cdc = {'enabled': true, 'postimage': true}"
)
_INSERT = "INSERT INTO ks.t (pk, number, note) VALUES (?, ?, ?)"
_NOTE = "a text as long as a short note in a row of a real table may be"


@define
class NumberedLog:
    """The log of the table `ks.t`. Each write inserts the next number."""

    scylla: EmbeddedScylla
    _session: Session
    written: int = field(default=0, init=False)
    """The number of rows inserted, which is also the next number to insert."""

    @property
    def options(self) -> dict[str, str]:
        """The options with which the source reads the log."""
        return {
            "hosts": self.scylla.contact_point,
            "keyspace": "ks",
            "table": "t",
            "consistencyLevel": "ONE",
            "format": "changes",
        }

    @property
    def whole(self) -> list[int]:
        """The expected result of a read, as `found` in `programs/reading.py` returns it."""
        return [self.written, self.written, 0, self.written - 1]

    def fill(self, rows: int) -> None:
        """Insert this many rows."""
        note = _NOTE.encode()
        for number in range(self.written, self.written + rows):
            key = struct.pack(">i", number)
            self.scylla.execute(_INSERT, (key, key, note))
            self.written = number + 1

    def write(self, at: int) -> None:
        """Insert one row with this timestamp."""
        insert = self._session.prepare(f"{_INSERT} USING TIMESTAMP ?")
        self._session.execute(insert, (self.written, self.written, _NOTE, at))
        self.written += 1

    @contextmanager
    def growing(self) -> Iterator[None]:
        """Insert rows in the background, one after another."""
        stop = threading.Event()
        insert = self._session.prepare(_INSERT)

        def write() -> None:
            while not stop.wait(0.005):
                self._session.execute(insert, (self.written, self.written, _NOTE))
                self.written += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@contextmanager
def numbered_log(address: str, rows: int) -> Iterator[NumberedLog]:
    """Yield a log with this many rows, on a server that listens on `address`."""
    with EmbeddedScylla(address, vnodes=4, ring_delay_ms=0) as scylla:
        session = open_session(scylla.host, scylla.port)
        session.use_client_timestamp = False  # the server's timestamps follow the order of writes
        for statement in (_KEYSPACE, _TABLE):
            session.execute(statement)
        log = NumberedLog(scylla, session)
        log.fill(rows)
        try:
            yield log
        finally:
            session.cluster.shutdown()
