"""Reads over a connection that is cut repeatedly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from cdc_reader import CdcReader, ConnectionConfig, ReadConfig
from tests.cdc_reader.support.line import Line
from tests.cdc_reader.support.tuned import tuning_of_module

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

COUNT = 300
TLS = Path(__file__).parents[3] / "data" / "tls"


@pytest.fixture
def line(scylla: Scylla) -> Iterator[Line]:
    """A proxy to the server under test."""
    line = Line((scylla.host, scylla.port))
    yield line
    line.close()


@pytest.fixture
def table(scylla: Scylla, keyspace: str) -> str:
    """A keyspace whose table `t` has 300 rows."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (p int, c int, PRIMARY KEY (p, c)) "
        "WITH cdc = {'enabled': true}"
    )
    insert = scylla.session.prepare(f"INSERT INTO {keyspace}.t (p, c) VALUES (?, ?)")
    for number in range(COUNT):
        scylla.session.execute(insert, (number % 10, number))
    return keyspace


small_chunks = tuning_of_module(streams_per_query=8, in_flight=2)


@pytest.mark.slow
@pytest.mark.needs("faults")
def test_a_connection_lost_in_a_page_loses_and_repeats_nothing(
    connection: ConnectionConfig, line: Line, table: str
) -> None:
    """Each page lost with a connection is requested again with its own paging state."""
    config = ReadConfig(fetch_size=10)
    found: list[int] = []
    cuts = [20, 90, 200]
    with CdcReader(
        evolve(connection, contact_points=line.contact_point), f"{table}.t", config=config
    ) as it:
        for batch in it.batches():
            found += batch.column("c").to_pylist()
            if cuts and len(found) > cuts[0]:
                cuts.pop(0)
                line.cut()
    assert not cuts
    assert sorted(found) == list(range(COUNT))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "tls"), [("close", False), ("drop", False), ("close", True)])
def test_a_truncated_response_is_requested_again_at_once(kind: str, *, tls: bool) -> None:
    """A truncated response is requested again at once, although the request timeout is an hour.

    The connection is reset or closed in the middle of the response.
    """
    from cdc_reader.testing import EmbeddedScylla, Fault

    certificate, key = (TLS / "certificate.pem", TLS / "key.pem") if tls else (None, None)
    with EmbeddedScylla(vnodes=2, certificate=certificate, key=key) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        server.execute("CREATE TABLE ks.t (p int PRIMARY KEY, v text) WITH cdc = {'enabled': true}")
        for number in range(40):
            server.execute(f"INSERT INTO ks.t (p, v) VALUES ({number}, '{'x' * 5_000}')")
        connection = ConnectionConfig(
            server.contact_point,
            tls_ca=str(certificate) if certificate else None,
            request_timeout=timedelta(hours=1),
        )
        fault = Fault(kind, "ks.t_scylla_cdc_log", times=3)
        found: list[int] = []

        def read() -> None:
            with CdcReader(connection, "ks.t") as reader:
                for batch in reader.batches():
                    found.extend(batch.column("p").to_pylist())

        with server.faults.during(fault):
            reading = threading.Thread(target=read, daemon=True)
            reading.start()
            reading.join(120)
            assert server.faults.struck(fault) == 3
    assert not reading.is_alive()
    assert sorted(found) == list(range(40))
