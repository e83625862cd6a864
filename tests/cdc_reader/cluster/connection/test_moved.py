"""A cluster that moves to other addresses, as when a container platform creates its nodes anew."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any

import pytest

from cdc_reader import CdcReader, ConnectionConfig, ReadConfig
from cdc_reader.errors import RetriesExhaustedError
from cdc_reader.testing import EmbeddedScylla
from tests.cdc_reader.support.line import Line

NAME, FIRST, SECOND = "db.test", "127.0.0.1", "127.0.0.77"
PATIENCE = 60
"""How many deadlines of a second to wait for the connection."""


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Names and their addresses, which a test may change."""
    addresses, look_up = {NAME: FIRST}, socket.getaddrinfo

    def getaddrinfo(host: Any, *options: Any, **more: Any) -> Any:
        return look_up(addresses.get(host, host), *options, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return addresses


@pytest.fixture
def server() -> Iterator[tuple[str, int]]:
    """A server with a row, at an address that no name leads to."""
    with EmbeddedScylla(host="127.0.0.200") as scylla:
        scylla.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        scylla.execute("CREATE TABLE ks.t (k int PRIMARY KEY) WITH cdc = {'enabled': true}")
        scylla.execute("INSERT INTO ks.t (k) VALUES (1)")
        yield scylla.host, scylla.port


def test_an_open_reader_follows_its_cluster(server: tuple[str, int], names: dict[str, str]) -> None:
    """A reader finds its cluster at the new address, once there is a node."""
    connection = ConnectionConfig(f"{NAME}:{server[1]}", consistency="ONE")
    read = ReadConfig(retry_deadline=timedelta(seconds=1))
    with (
        closing(Line(server, (FIRST, server[1]))) as first,
        CdcReader(connection, "ks.t", config=read) as reader,
    ):
        assert sum(1 for _ in reader.changes()) == 1
        first.close()
        names[NAME] = SECOND
        with suppress(RetriesExhaustedError):  # scylla-driver also tries the node's own address
            list(reader.changes())
        with closing(Line(server, (SECOND, server[1]))):
            assert changes_before_long(reader) == 1
            assert sum(1 for _ in reader.changes()) == 1


def changes_before_long(reader: CdcReader) -> int:
    """Return the number of changes; a busy machine may need longer than one deadline to connect."""
    for _ in range(PATIENCE):
        with suppress(RetriesExhaustedError):
            return sum(1 for _ in reader.changes())
    return sum(1 for _ in reader.changes())
