"""A client that uses scylla-driver. `test_clients.py` describes what clients do."""

import sys
import time
import uuid
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import HostStateListener, RoundRobinPolicy, TokenAwarePolicy
from cassandra.pool import Host
from cassandra.query import SimpleStatement
from cassandra.util import Date, Duration, Time


class Address(NamedTuple):
    """A value of the user-defined type."""

    street: str
    number: int


WRITTEN = {
    "pk": 1,
    "c_ascii": "abc",
    "c_bigint": 9007199254740993,
    "c_blob": b"\0\xff\x10",
    "c_boolean": True,
    "c_date": Date("2026-11-22"),
    "c_decimal": Decimal("12345678901234567890.123"),
    "c_double": 0.1,
    "c_duration": Duration(1, 2, 3),
    "c_float": 0.5,
    "c_inet": "192.0.2.1",
    "c_int": -7,
    "c_smallint": -300,
    "c_text": "grün",
    "c_time": Time("12:00:00.000000005"),
    "c_timestamp": datetime(2026, 11, 22, 12, 34, 56, 789_000),  # noqa: DTZ001 - the driver's UTC
    "c_timeuuid": uuid.UUID("8f1a3c00-c7a2-11f1-9b0e-0242ac120002"),
    "c_tinyint": -5,
    "c_uuid": uuid.UUID("123e4567-e89b-42d3-a456-426614174000"),
    "c_varchar": "x",
    "c_varint": 123456789012345678901234567890,
    "c_list": [1, 2, 1],
    "c_set": {"a", "b"},
    "c_map": {"a": 1, "b": 2},
    "c_udt": Address("Main", 7),
    "c_frozen": [3, 1],
    "c_frozen_udt": Address("Main", 7),
    "c_tuple": (1, "one"),
}


class Announcer(HostStateListener):  # type: ignore[misc]  # the driver ships no types
    """Prints the nodes that the driver adds."""

    def on_add(self, host: Host) -> None:
        print("added", host.address, flush=True)

    def on_up(self, host: Host) -> None:
        """Do nothing, because only added nodes are printed."""

    on_down = on_remove = on_up


def every_type(session: Session) -> None:
    """Write a value of each type, and read the values from the table and its log."""
    names, marks = ", ".join(WRITTEN), ", ".join("?" * len(WRITTEN))
    insert = session.prepare(f"INSERT INTO every ({names}) VALUES ({marks})")
    session.execute(insert, list(WRITTEN.values()))
    for table in ("every", "every_scylla_cdc_log"):
        (row,) = session.execute(f"SELECT * FROM {table}")
        for name, value in WRITTEN.items():
            found = getattr(row, name)
            if name == "c_list" and table != "every":  # the log stores a map, in the list's order
                found = list(found.values())
            assert found == value, f"{table}.{name}: {found!r}, expected {value!r}"


def counter(session: Session) -> None:
    """Increment a counter with a prepared statement."""
    add = session.prepare("UPDATE counted SET n = n + ? WHERE pk = 1")
    session.execute(add, (3,))
    session.execute(add, (4,))
    assert session.execute("SELECT n FROM counted").one().n == 7


def pages(session: Session) -> None:
    """Write a hundred rows, and read their log in pages of seven rows."""
    insert = session.prepare("INSERT INTO many (pk, ck, v) VALUES (?, ?, ?)")
    for i in range(100):
        session.execute(insert, (i % 7, i, str(i)))
    select = SimpleStatement("SELECT * FROM many_scylla_cdc_log", fetch_size=7)
    assert {row.ck for row in session.execute(select)} == set(range(100))


def transaction(session: Session) -> None:
    """Insert a row twice with IF NOT EXISTS. Only the first insert is applied."""
    insert = session.prepare("INSERT INTO many (pk, ck, v) VALUES (?, ?, ?) IF NOT EXISTS")
    applied = [session.execute(insert, (1, 1000, "new")).was_applied for _ in range(2)]
    assert applied == [True, False]


def main(host: str, port: str, _datacenter: str, keyspace: str, joins: str = "") -> None:
    """Run all steps. If `joins` is set, then wait for a node to join."""
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(RoundRobinPolicy()), request_timeout=30
    )
    cluster = Cluster(
        [host],
        port=int(port),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=30,
    )
    session = cluster.connect()
    cluster.register_listener(Announcer())
    for statement in sys.stdin:
        session.execute(statement)
    session.set_keyspace(keyspace)
    cluster.register_user_type(keyspace, "address", Address)
    for step in (every_type, counter, pages, transaction):
        step(session)
    print("done", flush=True)
    if joins:
        time.sleep(60)
    cluster.shutdown()


main(*sys.argv[1:])
