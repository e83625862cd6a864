"""Show the rows of a ScyllaDB table in web pages, which follow its changes.

    python examples/live_table/service.py HOST:PORT KEYSPACE.TABLE PORT

The service holds the rows in memory. It sends the rows, and then each change, to the pages as
server-sent events. A page that loses its connection reconnects by itself, and begins with the
current rows. The service needs fastapi and uvicorn, and a log with postimages.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from cdc_reader import AsyncChanges, Bound, Change, ReadConfig

PAGE = Path(__file__).with_name("page.html")
WAITING = 10_000
"""At most this many events wait for a page. A page that is too slow is disconnected."""

Queue = asyncio.Queue[ServerSentEvent]


class LiveTable:
    """The current rows of a table, and the pages that show them. Use it in only one event loop."""

    def __init__(self) -> None:
        self._rows: dict[Mapping[str, Any], ServerSentEvent] = {}
        """The event that shows each row, by the row's key."""
        self._pages: set[Queue] = set()

    def apply(self, change: Change) -> None:
        """Apply a change to the rows, and send it to the pages. Static rows are left out."""
        if change.operation.is_delete:
            is_row = change.key in self._rows
            gone = [change.key] if is_row else [key for key in self._rows if covers(change, key)]
            for key in gone:
                del self._rows[key]
                self._send(ServerSentEvent(event="delete", data={"key": text(key)}))
        elif not change.is_static:
            row = {**change.key, **(change.after or {})}
            cells = {name: text(value) for name, value in row.items()}
            shown = ServerSentEvent(event="row", data={"key": text(change.key), "cells": cells})
            self._rows[change.key] = shown
            self._send(shown)

    async def events(self) -> AsyncGenerator[ServerSentEvent]:
        """Yield the current rows and then the changes."""
        queue, rows = Queue(WAITING), [*self._rows.values()]
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


def covers(delete: Change, key: Mapping[str, Any]) -> bool:
    """Return True if a delete of a row, a range or a partition removes the row with this key."""
    if any(key[name] != value for name, value in delete.key.items()):
        return False
    rows = delete.range
    return rows is None or (
        inside(delete, rows.start, key, is_start=True) and inside(delete, rows.end, key)
    )


def inside(
    delete: Change, bound: Bound | None, key: Mapping[str, Any], *, is_start: bool = False
) -> bool:
    """Return True if a key satisfies one bound of a range.

    A bound may have values for the first clustering columns only.
    """
    if bound is None:
        return True
    for column in delete.schema.base.clustering:
        if column.name not in bound.prefix:
            break
        limit, value = bound.prefix[column.name], key[column.name]
        if value != limit:
            return (value > limit) == (is_start != column.descending)
    return bound.inclusive


async def follow(table: LiveTable, hosts: str, name: str) -> None:
    """Apply the existing rows, and then each change soon after it is written."""
    read = ReadConfig(delivery="eager")
    changes = AsyncChanges(hosts, name, application="live-table", snapshot="initial", read=read)
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
