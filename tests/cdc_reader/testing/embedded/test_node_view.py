"""Tests nodes that know less than the others, with the driver, over real sockets."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest
from attrs import define, field
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy
from cassandra.protocol import ServerError
from cassandra.query import SimpleStatement

from cdc_reader.errors import ConfigurationError
from cdc_reader.testing import EmbeddedScylla, ManualClock
from cdc_reader.testing.embedded.topology.ring import Node
from tests.drivers import PATIENT

pytestmark = pytest.mark.needs("faults", "topology")

SECOND = 1_000_000
VERSION = "SELECT schema_version FROM system.local"
PEERS = "SELECT peer, schema_version FROM system.peers"
COLUMNS = "SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'ks'"
TIMESTAMPS = (
    "SELECT timestamp FROM system.cdc_timestamps WHERE keyspace_name = 'ks' AND table_name = 't'"
)
STREAMS = (
    "SELECT stream_id FROM system.cdc_streams WHERE keyspace_name = 'ks' AND table_name = 't' "
    "AND timestamp = %s AND stream_state = 0"
)
GENERATIONS = (
    "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
)
DESCRIBED = "SELECT DISTINCT time FROM system_distributed.cdc_streams_descriptions_v2"


@define
class Nodes:
    """Three nodes with a manual clock, and a session with each. The table ks.t uses tablets."""

    clock: ManualClock
    server: EmbeddedScylla
    first: Node
    last: Node
    _opened: ExitStack
    _sessions: dict[str | None, Session] = field(factory=dict)

    def session(self, node: Node) -> Session:
        """Return the session with a node, which asks no other node."""
        if node.address not in self._sessions:
            profile = ExecutionProfile(
                WhiteListRoundRobinPolicy([node.address]), retry_policy=FallthroughRetryPolicy()
            )
            cluster = Cluster(
                [node.address],
                port=self.server.port,
                protocol_version=4,
                execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                max_schema_agreement_wait=0,  # the nodes do not agree
                **PATIENT,
            )
            self._opened.callback(cluster.shutdown)
            session = self._sessions[node.address] = cluster.connect()
            session.use_client_timestamp = False  # the server's clock is a manual one
        return self._sessions[node.address]

    def ask(self, node: Node, cql: str, *values: Any, level: str = "ONE") -> list[Any]:
        """Return the first column of all rows, as a node answers."""
        consistency = ConsistencyLevel.name_to_value[level]
        statement = SimpleStatement(cql, consistency_level=consistency)
        return [row[0] for row in self.session(node).execute(statement, values or None)]


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Three nodes, which all know the table ks.t."""
    clock = ManualClock(1_700_000_000 * SECOND)
    server = EmbeddedScylla(nodes=3, vnodes=1, shards=1, clock=clock, ring_delay_ms=1_000)
    server.execute(
        "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
        "'datacenter1': 3} AND tablets = {'initial': 4}"
    )
    server.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    with server, ExitStack() as opened:
        first, _, last = server.nodes
        yield Nodes(clock, server, first, last, opened)


def test_a_node_learns_of_a_new_column_late(nodes: Nodes) -> None:
    """A node that lags has the old schema version and columns until its lag has passed."""
    before = nodes.ask(nodes.last, VERSION)
    nodes.server.lag(nodes.last, 20 * SECOND)
    nodes.server.execute("ALTER TABLE ks.t ADD w int")
    for seconds in (0, 19):
        nodes.clock.advance(seconds * SECOND)
        assert nodes.ask(nodes.last, VERSION) == before
        assert "w" not in nodes.ask(nodes.last, COLUMNS)
        assert "w" in nodes.ask(nodes.first, COLUMNS)
        assert nodes.ask(nodes.first, VERSION) != before
    nodes.clock.advance(SECOND)
    assert "w" in nodes.ask(nodes.last, COLUMNS)
    assert nodes.ask(nodes.last, VERSION) == nodes.ask(nodes.first, VERSION)


def test_peers_tell_the_version_that_each_node_has(nodes: Nodes) -> None:
    """The other nodes know that a frozen node has the old version; it knows only the old one."""
    before = nodes.ask(nodes.last, VERSION)[0]
    nodes.server.freeze(nodes.last)
    nodes.server.execute("ALTER TABLE ks.t ADD w int")
    now = nodes.ask(nodes.first, VERSION)[0]

    def versions(node: Node) -> dict[str, UUID]:
        return {row.peer: row.schema_version for row in nodes.session(node).execute(PEERS)}

    assert versions(nodes.first) == {"127.0.0.2": now, "127.0.0.3": before}
    assert versions(nodes.last) == {"127.0.0.1": before, "127.0.0.2": before}
    nodes.server.release(nodes.last)
    assert set(versions(nodes.first).values()) == set(versions(nodes.last).values()) == {now}


def test_a_coordinator_without_a_column_leaves_it_out_or_refuses_it(nodes: Nodes) -> None:
    """`SELECT *` at a frozen node lacks the new column; statements that name it are refused."""
    everything = nodes.session(nodes.last).prepare("SELECT * FROM ks.t")
    with nodes.server.lagging(nodes.last):
        nodes.server.execute("ALTER TABLE ks.t ADD w int")
        nodes.session(nodes.first).execute("INSERT INTO ks.t (pk, v, w) VALUES (1, 2, 3)")
        for statement in (everything, "SELECT * FROM ks.t"):
            found = nodes.session(nodes.last).execute(statement)
            assert [row._asdict() for row in found] == [{"pk": 1, "v": 2}]
        for refused in ("SELECT w FROM ks.t", "UPDATE ks.t SET w = 4 WHERE pk = 1"):
            with pytest.raises(InvalidRequest, match=r"Unrecognized name w|Unknown identifier w"):
                nodes.session(nodes.last).execute(refused)
            with pytest.raises(InvalidRequest, match=r"Unrecognized name w|Unknown identifier w"):
                nodes.session(nodes.last).prepare(refused)
        nodes.session(nodes.last).execute("UPDATE ks.t SET v = 5 WHERE pk = 1")
        assert [tuple(row) for row in nodes.session(nodes.first).execute("SELECT * FROM ks.t")] == [
            (1, 5, 3)
        ]
    assert nodes.ask(nodes.last, "SELECT w FROM ks.t") == [3]


def test_a_frozen_node_does_not_know_a_new_table(nodes: Nodes) -> None:
    """A table that a frozen node has not heard of does not exist there until it is released."""
    nodes.server.freeze(nodes.last)
    nodes.server.execute("CREATE TABLE ks.u (pk int PRIMARY KEY)")
    with pytest.raises(InvalidRequest, match="unconfigured table u"):
        nodes.ask(nodes.last, "SELECT pk FROM ks.u")
    nodes.server.release(nodes.last)
    assert nodes.ask(nodes.last, "SELECT pk FROM ks.u") == []


def test_log_rows_are_right_whichever_node_answers(nodes: Nodes) -> None:
    """A frozen node returns the newest rows of tables and logs, and logs its own writes."""
    nodes.server.freeze(nodes.last)
    nodes.server.split_tablets("ks", "t")
    nodes.clock.advance(60 * SECOND)
    for number, node in enumerate(nodes.server.nodes):
        nodes.session(node).execute(f"INSERT INTO ks.t (pk) VALUES ({number})")
    newest = set(nodes.server.tablets.histories()[0].newest.streams)
    for node in nodes.server.nodes:
        assert sorted(nodes.ask(node, "SELECT pk FROM ks.t", level="QUORUM")) == [0, 1, 2]
        logged = nodes.session(node).execute('SELECT "cdc$stream_id", pk FROM ks.t_scylla_cdc_log')
        rows = [tuple(row) for row in logged]
        assert sorted(pk for _, pk in rows) == [0, 1, 2]
        assert {stream for stream, _ in rows} <= newest


def test_tablet_streams_are_local_to_the_node_that_answers(nodes: Nodes) -> None:
    """A node that lags knows neither the timestamp nor the streams of the newest set."""
    nodes.server.lag(nodes.last, 10 * SECOND)
    nodes.server.split_tablets("ks", "t")
    newest, oldest = nodes.ask(nodes.first, TIMESTAMPS)
    assert nodes.ask(nodes.last, TIMESTAMPS, level="QUORUM") == [oldest]
    assert nodes.ask(nodes.last, STREAMS, newest) == []
    assert len(nodes.ask(nodes.first, STREAMS, newest)) == 8
    nodes.clock.advance(10 * SECOND)
    assert nodes.ask(nodes.last, TIMESTAMPS) == [newest, oldest]
    assert len(nodes.ask(nodes.last, STREAMS, newest)) == 8


def test_a_frozen_node_keeps_expired_sets_of_streams(nodes: Nodes) -> None:
    """The other nodes discard the streams whose rows have expired; a frozen node does not."""
    nodes.server.lag(nodes.server.nodes[1], 30 * SECOND)
    nodes.server.freeze(nodes.last)
    nodes.server.split_tablets("ks", "t")
    nodes.clock.advance(30 * SECOND)
    assert [len(nodes.ask(node, TIMESTAMPS)) for node in nodes.server.nodes] == [2, 2, 1]
    nodes.clock.advance(2 * 86_400 * SECOND)
    assert [len(nodes.ask(node, TIMESTAMPS)) for node in nodes.server.nodes[1:]] == [2, 1]
    nodes.clock.advance(30 * SECOND)
    found = [nodes.ask(node, TIMESTAMPS) for node in nodes.server.nodes]
    assert found[0] == found[1] != found[2]
    assert len(found[0]) == 1


def test_generations_are_read_from_one_replica_or_a_majority(nodes: Nodes) -> None:
    """At ONE, a lagging node reads its own replica of the generations; at QUORUM, it reads all."""
    nodes.server.freeze(nodes.last)
    nodes.server.join(vnodes=1, shards=1)
    for cql in (GENERATIONS, DESCRIBED):
        known = {
            (node.address, level): len(nodes.ask(node, cql, level=level))
            for node in (nodes.first, nodes.last)
            for level in ("ONE", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "ALL")
        }
        behind = {(nodes.last.address, level) for level in ("ONE", "LOCAL_ONE")}
        assert {key for key, count in known.items() if count == 1} == behind
        assert set(known.values()) == {1, 2}
    nodes.server.release(nodes.last)
    assert len(nodes.ask(nodes.last, GENERATIONS)) == 2


def test_a_prepared_read_of_generations_follows_its_level(nodes: Nodes) -> None:
    """The consistency level decides at each execution of a prepared statement."""
    statement = nodes.session(nodes.last).prepare(GENERATIONS)
    nodes.server.freeze(nodes.last)
    nodes.server.check_and_repair_streams()
    nodes.server.add_empty_generation()
    counts = []
    for level in (ConsistencyLevel.ONE, ConsistencyLevel.QUORUM, ConsistencyLevel.ONE):
        statement.consistency_level = level
        counts.append(len(nodes.session(nodes.last).execute(statement).all()))
    assert counts == [1, 2, 1]


def test_a_frozen_node_does_not_see_nodes_join_or_leave(nodes: Nodes) -> None:
    """`system.peers` of a frozen node still lists a node that left, and not the one that joined."""
    peers = "SELECT peer FROM system.peers"
    nodes.server.freeze(nodes.last)
    nodes.server.join(vnodes=1, shards=1)
    nodes.server.leave(nodes.server.nodes[1])
    assert sorted(nodes.ask(nodes.last, peers)) == ["127.0.0.1", "127.0.0.2"]
    assert sorted(nodes.ask(nodes.first, peers)) == ["127.0.0.3", "127.0.0.4"]
    nodes.server.release(nodes.last)
    assert sorted(nodes.ask(nodes.last, peers)) == ["127.0.0.1", "127.0.0.4"]


def test_the_clocks_of_nodes_are_set_separately(nodes: Nodes) -> None:
    """A node that lags has the right time; its clock may be set as well."""
    time = "SELECT toUnixTimestamp(now()) FROM system.local"
    nodes.server.freeze(nodes.last)
    nodes.clock.advance(60 * SECOND)
    assert nodes.ask(nodes.last, time) == nodes.ask(nodes.first, time)
    nodes.server.skew_clock(nodes.last, -5 * SECOND)
    behind, now = nodes.ask(nodes.last, time)[0], nodes.ask(nodes.first, time)[0]
    assert now - behind == 5_000


def test_pages_of_a_query_may_come_from_nodes_that_differ(nodes: Nodes) -> None:
    """The page after a page of another node is the last one, and empty, if the node lags."""
    nodes.server.freeze(nodes.last)
    nodes.server.split_tablets("ks", "t")
    newest = nodes.ask(nodes.first, TIMESTAMPS)[0]
    statement = SimpleStatement(STREAMS, fetch_size=3)
    pages = nodes.session(nodes.first).execute(statement, (newest,))
    state = pages.paging_state
    assert len(pages.current_rows) == 3
    rest = nodes.session(nodes.last).execute(statement, (newest,), paging_state=state)
    assert (rest.current_rows, rest.has_more_pages) == ([], False)
    second = nodes.session(nodes.server.nodes[1])
    assert len(second.execute(statement, (newest,), paging_state=state).all()) == 5


def test_a_node_never_forgets_what_it_knows(nodes: Nodes) -> None:
    """A lag, however long, does not take away what a node knew before, or learned meanwhile."""
    nodes.server.split_tablets("ks", "t")
    nodes.server.lag(nodes.last, 3_600 * SECOND)
    assert len(nodes.ask(nodes.last, TIMESTAMPS)) == 2
    nodes.server.split_tablets("ks", "t")
    nodes.server.lag(nodes.last, SECOND)
    nodes.clock.advance(SECOND)
    nodes.server.lag(nodes.last, 3_600 * SECOND)
    assert len(nodes.ask(nodes.last, TIMESTAMPS)) == 3
    nodes.server.freeze(nodes.last)
    nodes.server.split_tablets("ks", "t")
    nodes.server.lag(nodes.last, 5 * SECOND)
    assert len(nodes.ask(nodes.last, TIMESTAMPS)) == 3
    nodes.clock.advance(5 * SECOND)
    assert len(nodes.ask(nodes.last, TIMESTAMPS)) == 4


def test_a_schema_statement_needs_the_other_nodes(nodes: Nodes) -> None:
    """A frozen node refuses a change of the schema; one that only lags knows all afterwards."""
    nodes.server.lag(nodes.last, 3_600 * SECOND)
    nodes.server.execute("ALTER TABLE ks.t ADD w int")
    nodes.session(nodes.last).execute("ALTER TABLE ks.t ADD x int")
    assert {"w", "x"} <= set(nodes.ask(nodes.last, COLUMNS))
    nodes.server.freeze(nodes.last)
    with pytest.raises(ServerError, match=r"raft operation \[read_barrier\] timed out"):
        nodes.session(nodes.last).execute("ALTER TABLE ks.t ADD y int")
    assert "y" not in nodes.ask(nodes.first, COLUMNS)


def test_a_frozen_node_accepts_conditional_writes(nodes: Nodes) -> None:
    """A conditional write at a frozen node works; with tablets its table must have been used so."""
    insert = "INSERT INTO ks.t (pk, v) VALUES (%s, 1) IF NOT EXISTS"
    nodes.session(nodes.first).execute(insert, (1,))
    nodes.server.freeze(nodes.last)
    assert nodes.ask(nodes.last, insert, 2) == [True]
    assert nodes.ask(nodes.last, insert, 1) == [False]


def test_clients_of_a_frozen_node_hear_of_changes_late(nodes: Nodes) -> None:
    """The clients of a node are told of a change when the node knows it, and of each one once."""
    heard = {node.address: events(nodes.session(node)) for node in (nodes.first, nodes.last)}
    nodes.server.freeze(nodes.last)
    nodes.server.execute("CREATE TABLE ks.u (pk int PRIMARY KEY)")
    assert heard[nodes.first.address]() == ("CREATED", "u")
    nodes.ask(nodes.last, VERSION)
    nodes.server.lag(nodes.last, 10 * SECOND)
    nodes.server.execute("CREATE TABLE ks.w (pk int PRIMARY KEY)")
    nodes.clock.advance(10 * SECOND)
    nodes.ask(nodes.last, VERSION)
    nodes.server.release(nodes.last)
    nodes.server.execute("DROP TABLE ks.u")
    told = [heard[nodes.last.address]() for _ in range(3)]
    assert told == [("CREATED", "u"), ("CREATED", "w"), ("DROPPED", "u")]


def test_a_node_that_lags_may_leave(nodes: Nodes) -> None:
    """A frozen node may be taken down, brought up and removed like any other."""
    nodes.server.freeze(nodes.last)
    nodes.server.execute("ALTER TABLE ks.t ADD w int")
    nodes.server.take_down(nodes.last)
    nodes.server.bring_up(nodes.last)
    assert b"w" not in {name for (name,) in nodes.server.execute(COLUMNS, node=nodes.last)}
    nodes.server.leave(nodes.last)
    for refused in (nodes.server.release, nodes.server.freeze):
        with pytest.raises(ValueError, match=r"127\.0\.0\.3: expected one that is on the ring"):
            refused(nodes.last)
    assert len(nodes.ask(nodes.first, "SELECT peer FROM system.peers")) == 1
    with pytest.raises(ConfigurationError, match="micros is -1: expected at least 0"):
        nodes.server.lag(nodes.first, -1)


def test_nothing_is_copied_while_no_node_lags(nodes: Nodes) -> None:
    """Copies are made only while a node lags, and discarded when the last one is released."""
    past = nodes.server._hosts._past
    nodes.server.split_tablets("ks", "t")
    assert past.newest == -1
    with nodes.server.lagging(nodes.last), nodes.server.lagging(nodes.first, SECOND):
        nodes.server.split_tablets("ks", "t")
        assert past.newest == 1
    assert past.newest == -1
    assert len(nodes.ask(nodes.last, TIMESTAMPS)) == 3


def test_states_that_all_nodes_know_are_discarded(nodes: Nodes) -> None:
    """As many states are kept as the node that is furthest behind has yet to learn of."""
    past = nodes.server._hosts._past
    nodes.server.lag(nodes.last, 10 * SECOND)
    for number in range(40):
        nodes.server.execute(f"CREATE TABLE ks.t{number} (pk int PRIMARY KEY)")
        nodes.clock.advance(SECOND)
    assert (past.newest, len(past._states)) == (40, 11)
    nodes.server.lag(nodes.first, 30 * SECOND)
    tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'ks'"
    assert len(nodes.ask(nodes.first, tables)) == 42
    assert len(nodes.ask(nodes.last, tables)) == 33


def events(session: Session) -> Callable[[], tuple[str, str]]:
    """Return a function that waits for the next change of a table that the session is told of."""
    told: queue.Queue[tuple[str, str]] = queue.Queue()
    session.cluster.control_connection._connection.register_watcher(
        "SCHEMA_CHANGE",
        lambda event: told.put((event["change_type"], event["table"])),
    )
    return lambda: told.get(timeout=120)
