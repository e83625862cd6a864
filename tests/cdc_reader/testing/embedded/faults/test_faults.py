"""Tests each kind of fault with cassandra-driver."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from cassandra import OperationTimedOut, ReadTimeout, Unauthorized, Unavailable
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.connection import ConnectionException
from cassandra.policies import (
    ConstantReconnectionPolicy,
    FallthroughRetryPolicy,
    WhiteListRoundRobinPolicy,
)
from cassandra.protocol import ErrorMessage, OverloadedErrorMessage, ServerError

from cdc_reader.testing import EmbeddedScylla, Fault
from tests.drivers import PATIENT

SELECT = "SELECT pk FROM ks.t"
T = TypeVar("T")


@pytest.fixture
def server() -> Iterator[EmbeddedScylla]:
    """A two-node server."""
    with EmbeddedScylla(nodes=2) as server:
        yield server


@pytest.fixture
def session(server: EmbeddedScylla) -> Iterator[Session]:
    """A session with the first node, without retries, and a table with 100 rows."""
    with_first = session_with(server, server.host)
    with_first.execute(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    with_first.execute("CREATE TABLE ks.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    insert = with_first.prepare("INSERT INTO ks.t (pk) VALUES (?)")
    for number in range(100):
        with_first.execute(insert, (number,))
    yield with_first
    with_first.cluster.shutdown()


def session_with(server: EmbeddedScylla, address: str) -> Session:
    """Open a session with one node, without retries."""
    profile = ExecutionProfile(
        WhiteListRoundRobinPolicy([address]), retry_policy=FallthroughRetryPolicy()
    )
    return Cluster(
        [address],
        port=server.port,
        protocol_version=4,
        **PATIENT,
        reconnection_policy=ConstantReconnectionPolicy(0.05, None),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
    ).connect()


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        ("overloaded", OverloadedErrorMessage, "too many in-flight requests"),
        ("server-error", ServerError, "a server error"),
        ("unavailable", Unavailable, "Cannot achieve consistency level for cl LOCAL_ONE"),
        (
            "read-timeout",
            ReadTimeout,
            r"timed out for ks.t - received only 0 responses from 1 CL=LOCAL_ONE\.",
        ),
    ],
)
def test_an_error_occurs_as_often_as_requested(
    server: EmbeddedScylla, session: Session, kind: str, error: type[Exception], text: str
) -> None:
    """The error has the right class and text, and statements before and after it succeed."""
    fault = Fault(kind, "ks.t", times=2, after=1)
    with server.faults.during(fault):
        assert len(list(session.execute(SELECT))) == 100
        for _ in range(2):
            with pytest.raises(error, match=text):
                session.execute(SELECT)
        assert len(list(session.execute(SELECT))) == 100
        assert server.faults.struck(fault) == 2


@pytest.mark.parametrize(
    ("statement", "needed"),
    [
        ("SELECT * FROM ks.t", "SELECT permission on <table ks.t>"),
        ('SELECT * FROM ks."t_scylla_cdc_log"', "SELECT permission on <table ks.t>"),
        ("INSERT INTO ks.t (pk) VALUES (1)", "MODIFY permission on <table ks.t>"),
        ("DELETE FROM ks.t WHERE pk = 1", "MODIFY permission on <table ks.t>"),
        (
            "CREATE TABLE IF NOT EXISTS ks.u (a int PRIMARY KEY)",
            "CREATE permission on <keyspace ks",
        ),
        ("ALTER TABLE ks.t ADD w int", "ALTER permission on <table ks.t>"),
    ],
)
def test_a_permission_is_missing(
    server: EmbeddedScylla, session: Session, statement: str, needed: str
) -> None:
    """The error names the missing permission, which for a log is a permission on its base table."""
    server.faults.add(Fault("unauthorized", "ks"))
    with pytest.raises(Unauthorized, match=f"User anonymous has no {needed}.* or any of its par"):
        session.execute(statement)


def test_errors_carry_counts_of_replicas(server: EmbeddedScylla, session: Session) -> None:
    """The errors contain the numbers of required and available replicas or responses."""
    server.faults.add(Fault("unavailable"), Fault("read-timeout"))
    with pytest.raises(Unavailable) as unavailable:
        session.execute(SELECT)
    assert unavailable.value.required_replicas == 1
    assert unavailable.value.alive_replicas == 0
    with pytest.raises(ReadTimeout) as timeout:
        session.execute(SELECT)
    assert timeout.value.required_responses == 1
    assert timeout.value.received_responses == 0
    assert timeout.value.data_retrieved is False


def test_a_connection_is_dropped_in_the_middle_of_a_page(
    server: EmbeddedScylla, session: Session
) -> None:
    """After the driver has reconnected, the paging state of the interrupted read is still valid."""
    server.faults.add(Fault("drop", "ks.t", after=2))
    select = session.prepare(SELECT)
    select.fetch_size = 20
    result = session.execute(select)
    found = [row.pk for row in result.current_rows]
    result.fetch_next_page()
    found += [row.pk for row in result.current_rows]
    with pytest.raises((ConnectionException, NoHostAvailable)):
        result.fetch_next_page()
    state = result.paging_state
    rest = until_connected(lambda: session.execute(select, paging_state=state))
    assert sorted(found + [row.pk for row in rest]) == list(range(100))


def until_connected(attempt: Callable[[], T]) -> T:
    """Retry until the driver has reconnected in the background, and return the result."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return attempt()
        except (NoHostAvailable, ConnectionException):
            if time.monotonic() > deadline:
                raise


def test_a_write_whose_response_is_lost_is_applied(
    server: EmbeddedScylla, session: Session
) -> None:
    """The write is applied although the client gets an error, as with a real server."""
    server.faults.add(Fault("drop", "insert into ks.t"))
    with pytest.raises((ConnectionException, NoHostAvailable)):
        session.execute("INSERT INTO ks.t (pk) VALUES (1000)")
    select = "SELECT pk FROM ks.t WHERE pk = 1000"
    assert until_connected(lambda: session.execute(select)).one().pk == 1000


def test_later_responses_overtake_a_delayed_one(server: EmbeddedScylla, session: Session) -> None:
    """A delayed response does not hold up others. A client may time out before it arrives."""
    server.faults.add(Fault("delay", "ks.t", seconds=30))
    with pytest.raises(OperationTimedOut):
        session.execute(SELECT, timeout=0.1)
    late = Fault("delay", "ks.t", seconds=3)
    server.faults.add(late)
    delayed, answered = session.execute_async(SELECT), threading.Event()
    delayed.add_callback(lambda _: answered.set())
    while not server.faults.struck(late):  # the requests may take different connections
        answered.wait(0.01)
    assert len(list(session.execute(SELECT))) == 100
    assert not answered.is_set()
    assert len(list(delayed.result())) == 100
    assert server.faults.struck(late) == 1


def test_a_lost_statement_is_prepared_again(server: EmbeddedScylla, session: Session) -> None:
    """The driver prepares a statement again when the node does not recognize its id."""
    select = session.prepare("SELECT pk FROM ks.t WHERE pk = ?")
    fault = Fault("unprepared", "ks.t")
    server.faults.add(fault)
    assert session.execute(select, (7,)).one().pk == 7
    assert server.faults.struck(fault) == 1


def test_a_node_goes_down_and_comes_back(server: EmbeddedScylla, session: Session) -> None:
    """Clients can reconnect to a node only when it is up again. Other nodes serve its data."""
    first, second = server.cluster.nodes
    assert second.address is not None
    with_second = session_with(server, second.address)
    try:
        select = with_second.prepare(SELECT)
        server.take_down(second)
        with pytest.raises((ConnectionException, NoHostAvailable)):
            with_second.execute(select)
        assert len(list(session.execute(SELECT))) == 100
        with pytest.raises(ValueError, match="expected one that clients can reach"):
            server.take_down(second)
        server.bring_up(second)
        rows = until_connected(lambda: with_second.execute(select))
        assert len(list(rows)) == 100
        with pytest.raises(ValueError, match="expected one that was taken down"):
            server.bring_up(first)
    finally:
        with_second.cluster.shutdown()


def test_a_node_that_is_down_may_leave(server: EmbeddedScylla) -> None:
    """A node that is down can be removed from the ring, but cannot be brought up afterward."""
    first, second = server.cluster.nodes
    server.take_down(second)
    server.leave(second)
    assert list(server.cluster.nodes) == [first]
    with pytest.raises(ValueError, match="expected one that was taken down"):
        server.bring_up(second)


def test_clocks_of_nodes_differ(server: EmbeddedScylla, session: Session) -> None:
    """Nodes timestamp writes by their own clocks, so a write through a node that is ahead wins."""
    _, second = server.cluster.nodes
    assert second.address is not None
    server.skew_clock(second, 60_000_000)
    session.execute("CREATE TABLE ks.v (pk int PRIMARY KEY, v int)")
    with_second = session_with(server, second.address)
    try:
        for each in (with_second, session):
            each.use_client_timestamp = False
        with_second.execute("UPDATE ks.v SET v = 2 WHERE pk = 1")
        session.execute("UPDATE ks.v SET v = 1 WHERE pk = 1")
        assert session.execute("SELECT v FROM ks.v").one().v == 2
    finally:
        with_second.cluster.shutdown()


def test_errors_are_the_servers_own_codes(server: EmbeddedScylla, session: Session) -> None:
    """The error codes are those of the protocol specification."""
    for kind, code in (("overloaded", 0x1001), ("server-error", 0x0000)):
        server.faults.add(Fault(kind))
        with pytest.raises(ErrorMessage) as error:
            session.execute(SELECT)
        assert error.value.code == code
