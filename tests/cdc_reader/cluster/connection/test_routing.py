"""Queries go to a node that owns their rows and, if the driver supports it, to the right shard."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.cluster import CdcTable, Connection
from cdc_reader.cluster.routing import key_of_token
from cdc_reader.cluster.values import murmur3
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.reading.ports import LogSource
from cdc_reader.reading.windows.planner import Chunking
from cdc_reader.streams.generation import shard_of
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import Task
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla, Fault
from cdc_reader.testing.embedded.topology.cluster import draw_nodes
from cdc_reader.testing.embedded.topology.generation import Generation
from cdc_reader.testing.embedded.topology.ring import Ring
from tests.drivers import IS_SCYLLA

ALL = Window(BEGINNING, FOREVER)
SHARDS = 4


@pytest.fixture
def server() -> Iterator[EmbeddedScylla]:
    """Four nodes with four shards each, and a log with 100 rows."""
    with EmbeddedScylla(nodes=4, vnodes=8, shards=SHARDS, seed=1) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        server.execute("CREATE TABLE ks.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
        for key in range(100):
            server.execute(f"INSERT INTO ks.t (pk) VALUES ({key})")
        yield server


@pytest.fixture
def connection(server: EmbeddedScylla) -> Iterator[Connection]:
    """A connection whose driver knows all nodes."""
    connection = Connection(ConnectionConfig(server.contact_point), ReadConfig())
    ask_until(connection, lambda: len(connection.session().get_pool_state()) == 4)
    yield connection
    connection.close()


def ask_until(connection: Connection, is_so: Callable[[], bool]) -> None:
    """Send queries until `is_so` returns True, because the driver connects in the background."""
    while not is_so():
        connection.session().execute("SELECT key FROM system.local")


class Reads:
    """A reader of streams that records the driver's requests."""

    def __init__(self, connection: Connection) -> None:
        table = CdcTable(connection, TableName("ks", "t"))
        self.source: LogSource = table.source(table.schema())
        groups = table.generations.groups(max(table.generations.timestamps()))
        ordered = sorted(groups, key=lambda group: group.range_end)
        self.streams = tuple(stream for group in ordered for stream in group.streams)
        self.requests: list[Any] = []
        connection.session().add_request_init_listener(self.requests.append)

    def rows(self, *streams: StreamId) -> int:
        """Return the number of rows in the streams."""
        return sum(batch.num_rows for batch in self.source.read(Task(ALL, streams)))


def test_the_owner_of_the_last_stream_is_queried(
    server: EmbeddedScylla, connection: Connection
) -> None:
    """Each chunk is requested from the owner of its last stream, so all four nodes are queried."""
    reads = Reads(connection)
    chunks = [reads.streams[at : at + 8] for at in range(0, len(reads.streams), 8)]
    reads.rows(*reads.streams[:1])  # prepare the statement
    reads.requests.clear()
    assert sum(reads.rows(*chunk) for chunk in chunks) == 100
    asked = [request.attempted_hosts[0].address for request in reads.requests]
    owners = [server.cluster.ring.owner(chunk[-1].token).address for chunk in chunks]
    assert asked == owners
    assert len(set(asked)) == 4


def test_another_node_is_queried_when_the_owner_fails(
    server: EmbeddedScylla, connection: Connection
) -> None:
    """A read continues on another node if the owner returns an error or is down."""
    reads = Reads(connection)
    stream = reads.streams[0]
    expected = reads.rows(stream)
    owner = server.cluster.ring.owner(stream.token)
    reads.requests.clear()
    with server.faults.during(Fault("server-error", "ks.t_scylla_cdc_log")):
        assert reads.rows(stream) == expected
    first, second = (request.attempted_hosts[0].address for request in reads.requests)
    assert first == owner.address
    assert reads.requests[1].query.token is None
    assert second in {node.address for node in server.cluster.nodes}
    if owner.address != server.host:  # the driver receives events from the first node
        server.take_down(owner)
        assert reads.rows(stream) == expected


@pytest.mark.skipif(not IS_SCYLLA, reason="cassandra-driver knows no shards")
def test_a_single_stream_is_queried_at_its_shard(connection: Connection) -> None:
    """A query of one stream uses the connection to the shard of that stream."""
    reads = Reads(connection)
    pools = connection.session().get_pools()
    ask_until(connection, lambda: all(len(pool._connections) == SHARDS for pool in pools))
    shards = set()
    for stream in reads.streams[:32]:
        reads.requests.clear()
        reads.rows(stream)
        shard = reads.requests[-1]._connection.features.shard_id
        assert shard == shard_of(stream.token, SHARDS)
        shards.add(shard)
    assert len(shards) == SHARDS


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_a_key_has_the_token_it_was_made_for(token: int) -> None:
    """The driver hashes each key to the token for which the key was made.

    The smallest token is omitted because no stream has it.
    """
    assert murmur3(key_of_token(token)) == token


@pytest.mark.parametrize(
    ("nodes", "shards", "in_turn", "by_owner"), [(3, 8, 1.0, 1.0), (6, 8, 0.5, 0.75)]
)
def test_most_streams_are_on_the_queried_node(
    nodes: int, shards: int, in_turn: float, by_owner: float
) -> None:
    """The fraction of streams on the queried node matches the figure on the design page."""
    source = random.Random(1)
    ring = Ring(draw_nodes(source, [f"10.0.0.{number}" for number in range(nodes)], 256, shards))
    ranges = sorted(Generation.of(ring, 0, source).ranges, key=lambda each: each.range_end)
    streams = [StreamId(stream) for each in ranges for stream in each.streams]
    chunks = Chunking(streams, 64)
    found = {"in turn": 0, "by owner": 0}
    for number, chunk in enumerate(chunks):
        asked = {"in turn": ring.nodes[number % nodes], "by owner": ring.owner(chunk[-1].token)}
        held = [replicas(ring, stream.token) for stream in chunk]
        for way, node in asked.items():
            found[way] += sum(node.address in addresses for addresses in held)
    assert found["in turn"] / len(streams) == pytest.approx(in_turn, abs=0.03)
    assert found["by owner"] / len(streams) == pytest.approx(by_owner, abs=0.03)


def replicas(ring: Ring, token: int) -> frozenset[str | None]:
    """Return the owners of the ranges from `token` on, up to three distinct nodes."""
    at = bisect_left(ring.tokens, token)
    owners = (ring.owner(end).address for end in (*ring.tokens[at:], *ring.tokens))
    found: dict[str | None, None] = {}
    while len(found) < 3:
        found[next(owners)] = None
    return frozenset(found)
