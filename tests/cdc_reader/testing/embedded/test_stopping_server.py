"""Tests that connections still being accepted are closed when a server or node stops."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cdc_reader.testing import EmbeddedScylla

_ENOUGH = 50
"""Number of connections after which the server stops, while clients open more."""


@pytest.fixture(autouse=True)
def _few_objects_to_scan() -> Iterator[None]:
    """Exclude the objects of earlier tests from the many garbage collections of these tests."""
    gc.freeze()
    yield
    gc.unfreeze()


@contextmanager
def connecting(contact_point: str) -> Iterator[None]:
    """Open connections continuously, from before the `with` block begins until it ends."""
    host, port = contact_point.split(":")
    stop, enough, opened = threading.Event(), threading.Event(), []

    def connect() -> None:
        while not stop.is_set():
            try:
                opened.append(socket.create_connection((host, int(port)), 1))
            except OSError:
                return
            if len(opened) >= _ENOUGH:
                enough.set()

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        assert enough.wait(120)
        yield
    finally:
        stop.set()
        thread.join()
        for connection in opened:
            connection.close()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_server_that_stops() -> None:
    """A server that is stopped leaves no socket open. Python would warn of an open socket."""
    for _ in range(3):
        with EmbeddedScylla() as server, connecting(server.contact_point):
            server.stop()
        gc.collect()


@pytest.mark.slow
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_node_that_fails() -> None:
    """A node that is taken down leaves no socket open."""
    with EmbeddedScylla() as server:
        [node] = server.cluster.nodes
        for _ in range(5):
            with connecting(server.contact_point):
                server.take_down(node)
            gc.collect()
            server.bring_up(node)
