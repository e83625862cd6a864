"""Show the rows of a ScyllaDB table in web pages, which follow its changes.

    python examples/live_table/service.py HOST:PORT KEYSPACE.TABLE PORT

The service holds the rows in memory. It sends the rows, and then each change, to the pages as
server-sent events. A page that loses its connection reconnects by itself, and begins with the
current rows. The service needs fastapi and uvicorn, and a log with postimages.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from copy import copy
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from cdc_reader import AsyncChanges, Change, MemoryCheckpoints, ReadConfig

PAGE = Path(__file__).with_name("page.html")
WAITING = 10_000
"""At most this many events wait for a page. A page that is too slow is disconnected."""
KEPT = 60_000_000
"""Deletes are kept for this time, in µs. A change arrives at most half of it late (the confidence
window) or is not delivered."""

Queue = asyncio.Queue[ServerSentEvent]


class Row:
    """The values of a row. A change may arrive after newer ones, so each value has its time."""

    def __init__(self) -> None:
        self.written = 0
        """The timestamp of the newest change, in µs."""
        self.cells: dict[str, tuple[int, Any]] = {}
        """The timestamp of each column's last write, and its value."""

    def write(self, change: Change) -> None:
        """Apply an insert or an update. A late one sets only columns without a newer value."""
        is_newest = change.timestamp >= self.written
        for name, value in (change.after or {}).items():
            time, _ = self.cells.get(name, (0, None))
            is_written = name in change.deltas and change.timestamp > time
            if is_newest or is_written:
                self.cells[name] = change.timestamp if is_written else time, value
        self.written = max(self.written, change.timestamp)

    def clear(self, timestamp: int) -> None:
        """Apply a delete that is older than the row: remove the values that it deleted."""
        for name, (time, _) in self.cells.items():
            if time <= timestamp:
                self.cells[name] = time, None


class Deletes:
    """The deletes of the last minute, because a change may arrive after a newer delete."""

    def __init__(self) -> None:
        self._recent: deque[Change] = deque()
        self._of: dict[Mapping[str, Any], deque[Change]] = {}
        """The same deletes by partition, in the same order."""

    def add(self, delete: Change) -> None:
        """Add a delete, and forget older ones."""
        self._recent.append(delete)
        self._of.setdefault(delete.partition_key, deque()).append(delete)
        while self._recent[0].timestamp < delete.timestamp - KEPT:
            partition = self._recent.popleft().partition_key
            self._of[partition].popleft()
            if not self._of[partition]:
                del self._of[partition]

    def cover(self, change: Change) -> bool:
        """Return True if a delete removed what this change wrote."""
        own = self._of.get(change.partition_key, ())
        return any(each.timestamp >= change.timestamp and each.covers(change.key) for each in own)


class LiveTable:
    """The current rows of a table, and the pages that show them. Use it in only one event loop."""

    def __init__(self) -> None:
        self._rows: dict[Mapping[str, Any], dict[Mapping[str, Any], Row]] = {}
        """The rows of each partition, by key."""
        self._deletes = Deletes()
        self._pages: set[Queue] = set()

    def apply(self, change: Change) -> None:
        """Apply a change to the rows, and send it to the pages. Static rows are left out."""
        if change.operation.is_delete:
            self._delete(change)
        elif not change.is_static and not self._deletes.cover(change):
            row = self._rows.setdefault(change.partition_key, {}).setdefault(change.key, Row())
            row.write(change)
            self._send(shown(change.key, row))

    def _delete(self, delete: Change) -> None:
        self._deletes.add(copy(delete))  # the copy does not keep the page of the log in memory
        rows = self._rows.get(delete.partition_key, {})
        for key in [key for key in rows if delete.covers(key)]:
            if (row := rows[key]).written > delete.timestamp:
                row.clear(delete.timestamp)
                self._send(shown(key, row))
            else:
                del rows[key]
                self._send(ServerSentEvent(event="delete", data={"key": text(key)}))
        if not rows:
            self._rows.pop(delete.partition_key, None)

    async def events(self) -> AsyncGenerator[ServerSentEvent]:
        """Yield the current rows and then the changes."""
        queue = Queue(WAITING)
        rows = [shown(key, row) for rows in self._rows.values() for key, row in rows.items()]
        self._pages.add(queue)
        try:
            # If the connection is lost, the browser connects again after 500 ms.
            yield ServerSentEvent(event="reset", data={}, retry=500)
            for row in rows:
                yield row
            while queue in self._pages:
                yield await queue.get()
        finally:
            self._pages.discard(queue)

    def _send(self, event: ServerSentEvent) -> None:
        for queue in [*self._pages]:
            if queue.full():
                self._pages.discard(queue)
            else:
                queue.put_nowait(event)


def text(value: object) -> str | None:
    """Return a value as text for the page, because JavaScript rounds large integers."""
    if value is None or isinstance(value, str):
        return value
    return str(dict(value) if isinstance(value, Mapping) else value)


def shown(key: Mapping[str, Any], row: Row) -> ServerSentEvent:
    """Return the event that shows a row."""
    values = {**key, **{name: value for name, (_, value) in row.cells.items()}}
    cells = {name: text(value) for name, value in values.items()}
    return ServerSentEvent(event="row", data={"key": text(key), "cells": cells})


async def follow(table: LiveTable, hosts: str, name: str) -> None:
    """Apply the existing rows, and then each change soon after it is written."""
    changes = AsyncChanges(
        hosts,
        name,
        application="live-table",
        snapshot="initial",
        checkpoints=MemoryCheckpoints(),  # as the rows
        read=ReadConfig(delivery="eager"),
    )
    async with aclosing(aiter(changes)) as each:
        async for change in each:
            table.apply(change)
            await asyncio.sleep(0)  # let the pages' tasks run


def service(hosts: str, name: str) -> FastAPI:
    """Return the service: the page, the events, and a health check."""
    table = LiveTable()
    following: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        following.append(asyncio.create_task(follow(table, hosts, name)))
        yield
        following[0].cancel()
        await asyncio.wait(following)

    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    async def page() -> FileResponse:
        return FileResponse(PAGE)

    @app.get("/changes", response_class=EventSourceResponse)
    async def changes() -> AsyncIterator[ServerSentEvent]:
        async with aclosing(table.events()) as events:
            async for event in events:
                yield event

    @app.get("/health")
    async def health() -> str:
        if following[0].done():
            raise HTTPException(503, f"stopped following: {following[0].exception()}")
        return "following"

    return app


def main(hosts: str, name: str, port: str) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    uvicorn.run(service(hosts, name), port=int(port), timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
