"""The embedded ScyllaDB in a separate process, so that it takes no CPU time from the client."""

from __future__ import annotations

import itertools
import multiprocessing
import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

from attrs import frozen

from cdc_reader.config import ConnectionConfig
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.embedded import session
from cdc_reader.testing.embedded.protocol.requests import Execute, Query, Request
from cdc_reader.testing.embedded.protocol.responses import Answer
from cdc_reader.testing.embedded.session import Session

KEYSPACE = "bench"
_KEYSPACE = (
    f"CREATE KEYSPACE {KEYSPACE} WITH replication = "
    "{'class': 'SimpleStrategy', 'replication_factor': 1}"
)
Row = Sequence[bytes | None]
_handle, _handled = Session._handle, [0]


@frozen
class Served:
    """A server in another process, as its client sees it."""

    _pipe: Connection
    port: int

    @property
    def config(self) -> ConnectionConfig:
        """The configuration to connect to the server."""
        return ConnectionConfig(f"127.0.0.1:{self.port}", consistency="ONE")

    def execute(self, cql: str, rows: Iterable[Row] = ((),)) -> None:
        """Execute a statement in the server's process, once for each row of values."""
        self._ask(_execute, cql, list(rows))

    def replay(self, table: str, times: int, page_rows: int = 5_000, *, selected: str = "*") -> int:
        """Serve the table's first page `times` times to every read. Return the page size in bytes.

        `selected` is the selection clause of the reads.
        """
        size: int = self._ask(_replay, table, times, page_rows, selected)
        return size

    def replay_on(self, table: str, times: int, page_rows: int = 5_000) -> None:
        """Replay the first page with each record later than the previous one, as in a real log.

        Grouping rows into changes relies on this order, and some clients drop a row that is not
        later than the previous row.
        """
        self._ask(_replay_on, table, times, page_rows)

    def replay_columns(
        self, table: str, columns: Sequence[str], times: int, page_rows: int
    ) -> None:
        """Serve `times` pages, with only these columns, to every read of a table.

        Two pages alternate, and the records of the first are earlier than those of the second. Two
        pages take less memory than the pages of `replay_on`.
        """
        selected = ", ".join(f'"{name}"' for name in columns)
        self._ask(_replay_on, table, times, page_rows, selected, 2)

    def replay_pages(self, keyspace: str, table: str, pages: Sequence[bytes]) -> None:
        """Serve these pages to every read of a table."""
        self._ask(EmbeddedScylla.replay, keyspace, table, pages)

    def asked(self) -> int:
        """Return the number of statements executed for clients.

        Counting begins with the first call.
        """
        count: int = self._ask(_asked)
        return count

    def _ask(self, action: Any, *arguments: Any) -> Any:
        self._pipe.send((action, arguments))
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def serving(*, vnodes: int = 1, shards: int = 1) -> Iterator[Served]:
    """Yield a server. With one vnode and one shard, each window takes one query."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs, vnodes, shards), daemon=True
    )
    process.start()
    theirs.close()  # so that `recv` raises EOFError if the server ends
    try:
        yield Served(ours, ours.recv())
    finally:
        ours.close()
        process.join(10)
        process.kill()


def _serve(pipe: Connection, vnodes: int, shards: int) -> None:
    # Pages are not compressed, as for clients without lz4 and snappy: the benchmark measures rows.
    uncompressed = patch.object(session, "compressions", dict)
    with uncompressed, EmbeddedScylla(port=0, vnodes=vnodes, shards=shards) as scylla:
        scylla.execute(_KEYSPACE)
        pipe.send(scylla.port)
        while True:
            try:
                action, arguments = pipe.recv()
            except EOFError:
                return
            try:
                pipe.send(action(scylla, *arguments))
            except Exception as error:  # noqa: BLE001 - raised again by the caller
                pipe.send(error)


def _asked(_scylla: EmbeddedScylla) -> int:
    if Session._handle is not _counting:
        Session._handle = _counting  # type: ignore[assignment,method-assign]  # a plain function
    return _handled[0]


def _counting(session: Session, request: Request) -> Answer:
    if isinstance(request, Query | Execute):
        _handled[0] += 1
    return _handle(session, request)


def _execute(scylla: EmbeddedScylla, cql: str, rows: list[Row]) -> None:
    for row in rows:
        scylla.execute(cql, row)


def _replay_on(
    scylla: EmbeddedScylla,
    table: str,
    times: int,
    page_rows: int,
    columns: str = "*",
    different: int | None = None,
) -> None:
    scylla.end_replay(KEYSPACE, table)
    page, *_ = scylla.pages(f"SELECT {columns} FROM {KEYSPACE}.{table}", page_rows)
    found = scylla.execute(f'SELECT "cdc$time" FROM {KEYSPACE}.{table} LIMIT {page_rows}')
    pages = list(_going_on(page, [at for (at,) in found if at], different or times))
    scylla.replay(KEYSPACE, table, pages, times // len(pages))


def _going_on(page: bytes, found: list[bytes], times: int) -> Iterator[bytes]:
    """Yield the page `times` times. Each record is 100 ns later than the previous one."""
    records: list[list[int]] = []  # byte offsets of each record's times in the page
    place = -1
    for at, rows in itertools.groupby(found):
        records.append([])
        for _ in rows:
            place = page.index(at, place + 1)
            records[-1].append(place)
    ticks = itertools.count(uuid.UUID(bytes=found[0]).time)
    later = bytearray(page)
    for _ in range(times):
        for places, tick in zip(records, ticks, strict=False):
            high, low = tick >> 32, tick & 0xFFFF_FFFF
            for place in places:
                struct.pack_into(">IHH", later, place, low, high & 0xFFFF, 0x1000 | high >> 16)
        yield bytes(later)


def _replay(scylla: EmbeddedScylla, table: str, times: int, page_rows: int, selected: str) -> int:
    scylla.end_replay(KEYSPACE, table)
    page, *_ = scylla.pages(f"SELECT {selected} FROM {KEYSPACE}.{table}", page_rows)
    scylla.replay(KEYSPACE, table, [page], times)
    return len(page)
