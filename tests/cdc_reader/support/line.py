"""A proxy whose connections can be cut and suspended."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class Line:
    """A proxy that forwards connections to a server.

    New connections work after a cut. While suspended, the proxy accepts data but forwards nothing,
    like a server that hangs.
    """

    def __init__(self, server: tuple[str, int], at: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._server = server
        self._listener = socket.create_server(at)
        self._ends: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._flows = threading.Event()
        self._flows.set()
        self.holds = threading.Event()
        """An event that is set when data is held back."""
        self._start(self._accept)

    @property
    def contact_point(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def cut(self) -> None:
        """Break all connections, possibly in the middle of a message."""
        for end in list(self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def hold(self) -> None:
        """Stop forwarding data in both directions."""
        self.holds.clear()
        self._flows.clear()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._flows.set()
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
                if not self._flows.is_set():
                    self.holds.set()
                self._flows.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
