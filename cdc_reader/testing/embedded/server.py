"""The server's sockets and event loop, in a separate thread.

The whole server runs in that thread, except for the parsing of long texts, so it needs no locks.
A connection's requests are handled in order of arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from cdc_reader._log import get_logger
from cdc_reader.testing.embedded.grammar.parser import parse_ahead
from cdc_reader.testing.embedded.protocol.responses import Answer
from cdc_reader.testing.embedded.rest import RestApi
from cdc_reader.testing.embedded.session import Host, Session

log = get_logger(__name__)

T = TypeVar("T")

_READ_SIZE = 256 * 1024
_FAREWELL_SECONDS = 2.0
_BIND_ATTEMPTS = 10
_NO_LINGER = struct.pack("ii", 1, 0)


class Server:
    """Listens for clients on each node's address; all addresses use the same port.

    Each address also has a shard-aware port, on which the client's port modulo the number of shards
    selects the shard. Unless `rest_port` is None, the API that `rest` returns for a host serves
    HTTP on that port. A port of 0 means any free port. Call `start` and `stop` at most once each.
    """

    def __init__(
        self,
        hosts: Mapping[str, Host],
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        rest_port: int | None = None,
        rest: Callable[[Host], RestApi] | None = None,
    ) -> None:
        self._hosts = dict(hosts)
        self._port = port
        self._tls = tls
        self.rest_port = rest_port
        self._rest = rest
        self._writers: dict[Session, asyncio.StreamWriter] = {}
        self._conversations: set[asyncio.Task[None]] = set()
        self._listening: dict[str, tuple[asyncio.Server, ...]] = {}
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event

    @property
    def port(self) -> int:
        """The port that the server listens on; before `start`, the requested port."""
        return self._port

    @property
    def uses_tls(self) -> bool:
        return self._tls is not None

    @property
    def sessions(self) -> Iterable[Session]:
        """The open sessions."""
        return tuple(self._writers)

    def start(self) -> None:
        """Start listening; raise OSError if an address or the port is not available."""
        listeners = _listen(tuple(self._hosts), self._port)
        self._port = listeners[0].getsockname()[1]
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run,
            args=(listeners, started),
            name=f"embedded-scylla-{self._port}",
            daemon=True,
        )
        self._thread.start()
        started.result()

    def stop(self) -> None:
        """Stop listening, close all connections and end the thread."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
            self._thread = None

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` between two requests; return its result or raise its error."""
        if self._thread is None or threading.current_thread() is self._thread:
            return function()
        outcome: Future[T] = Future()
        self._loop.call_soon_threadsafe(_complete, outcome, function)
        return outcome.result()

    def broadcast(self, kind: str, event: Answer, hosts: Collection[Host]) -> None:
        """Send an event to the clients of `hosts` that registered for its kind.

        It is sent after the current response.
        """
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._send, kind, event, hosts)

    def open_host(self, address: str, host: Host) -> None:
        """Listen on one more address; raise OSError if it is not available."""
        if self._thread is None:
            self._hosts[address] = host
            return
        listener = _listener(address, self._port)
        asyncio.run_coroutine_threadsafe(self._open(address, host, listener), self._loop).result()

    def close_host(self, address: str) -> Host:
        """Stop listening on this address and close its connections; return its `Host`."""
        host, servers = self.call(partial(self._withdraw, address))
        if servers:
            stopped = asyncio.run_coroutine_threadsafe(self._stop_listening(servers), self._loop)
            if threading.current_thread() is not self._thread:
                stopped.result()
        return host

    def _withdraw(self, address: str) -> tuple[Host, Sequence[asyncio.Server]]:
        host = self._hosts.pop(address)
        for session, writer in self._writers.items():
            if session.host is host:
                writer.close()
        return host, self._listening.pop(address, ())

    def _send(self, kind: str, event: Answer, hosts: Collection[Host]) -> None:
        for session, writer in self._writers.items():
            if kind in session.events and session.host in hosts:
                writer.write(session.event(event))

    def _run(self, listeners: Iterable[socket.socket], started: Future[None]) -> None:
        try:
            asyncio.run(self._serve(listeners, started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, listeners: Iterable[socket.socket], started: Future[None]) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        for (address, host), listener in zip(self._hosts.items(), listeners, strict=True):
            await self._open(address, host, listener)
        started.set_result(None)
        await self._stopping.wait()
        await self._stop_listening([*itertools.chain(*self._listening.values())])
        await self._hang_up()

    async def _open(self, address: str, host: Host, listener: socket.socket) -> None:
        self._hosts[address] = host
        aware = _listener(address, 0)
        option = "SCYLLA_SHARD_AWARE_PORT" + "_SSL" * self.uses_tls, str(aware.getsockname()[1])
        self._listening[address] = (
            await self._accepting(listener, partial(Session, host, shard_aware_port=option)),
            await self._accepting(aware, partial(Session.of_shard, host, shard_aware_port=option)),
        )
        if self.rest_port is not None and self._rest is not None:
            listener = _listener(address, self.rest_port)
            self.rest_port = listener.getsockname()[1]
            served = await asyncio.start_server(self._rest(host).serve, sock=listener)
            self._listening[address] += (served,)

    async def _stop_listening(self, servers: Sequence[asyncio.Server]) -> None:
        for listener in itertools.chain(*(server.sockets for server in servers)):
            self._loop.remove_reader(listener.fileno())
        for _ in range(5):  # if a server closes during an accept, asyncio loses the connection
            await asyncio.sleep(0)
        for server in servers:
            server.close()

    async def _accepting(
        self, listener: socket.socket, session: Callable[..., Session]
    ) -> asyncio.Server:
        return await asyncio.start_server(
            partial(self._accept, session), sock=listener, ssl=self._tls, limit=_READ_SIZE
        )

    async def _hang_up(self) -> None:
        for writer in self._writers.values():
            writer.close()
        if self._conversations:
            await asyncio.wait(self._conversations, timeout=_FAREWELL_SECONDS)
        for writer in self._writers.values():
            writer.transport.abort()

    def _accept(
        self,
        made: Callable[..., Session],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Register the connection at once, so that `stop` closes all accepted connections."""
        session = made(peer=writer.get_extra_info("peername")[:2])
        if self._stopping.is_set() or session.host not in self._hosts.values():
            writer.transport.abort()
            return
        self._writers[session] = writer
        task = asyncio.create_task(self._attend(session, reader, writer))
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)

    async def _attend(
        self, session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await self._converse(session, reader, writer)
        except (ConnectionError, ssl.SSLError) as error:
            log.debug("connection_lost", peer=session.peer, error=str(error))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()  # until then, `stop` may have to abort the connection
            del self._writers[session]

    @staticmethod
    async def _converse(
        session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        while not session.is_closed and (data := await reader.read(_READ_SIZE)):
            for reply in session.receive(data):
                if isinstance(reply, str):
                    await asyncio.to_thread(parse_ahead, reply)
                    continue
                if reply.delay:
                    loop.call_later(reply.delay, _write_late, writer, reply.data)
                    continue
                writer.write(reply.data)
                if reply.breaks:
                    _break_off(writer)
                    return
                await writer.drain()


def _break_off(writer: asyncio.StreamWriter) -> None:
    """Reset a connection, like a node that crashes, so that the client notices at once."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()


def _write_late(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():
        writer.write(data)


def _complete(outcome: Future[T], function: Callable[[], T]) -> None:
    try:
        outcome.set_result(function())
    except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
        outcome.set_exception(error)


def _listen(addresses: tuple[str, ...], port: int) -> list[socket.socket]:
    """Open a listening socket per address, all on one port."""
    attempts = 1 if port else _BIND_ATTEMPTS
    for attempt in range(1, attempts + 1):
        with contextlib.ExitStack() as opened:
            try:
                first = opened.enter_context(_listener(addresses[0], port))
                found = first.getsockname()[1]
                others = [opened.enter_context(_listener(a, found)) for a in addresses[1:]]
            except OSError:
                if attempt == attempts:
                    raise
                continue
            opened.pop_all()
            return [first, *others]
    raise AssertionError("unreachable: the last attempt returns or raises")


def _listener(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=128)
    # Connections inherit this option. It avoids a delay of 40 ms between small responses.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
