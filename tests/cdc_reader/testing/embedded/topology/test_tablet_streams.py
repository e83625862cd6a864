"""Tests how the streams of tables that use tablets are created, resized, expired and dropped."""

import pytest
from attrs import define, field

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.clock import ManualClock
from cdc_reader.testing.embedded.errors import ServerError
from cdc_reader.testing.embedded.query.engine import Engine
from cdc_reader.testing.embedded.query.model import QueryOptions
from cdc_reader.testing.embedded.query.result import Rows

SECOND = 1_000_000
NOW = 1_795_220_000 * SECOND
LOG = "tk.t_scylla_cdc_log"


@define
class Tablets:
    """A two-node cluster without sockets, with 3 shards per node and a keyspace with tablets."""

    clock: ManualClock = field(factory=lambda: ManualClock(NOW))
    server: EmbeddedScylla = field(init=False)
    engine: Engine = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.server = EmbeddedScylla(clock=self.clock, nodes=2, vnodes=1, shards=3, seed=1)
        self.engine = self.server._host(self.server.cluster.nodes[0]).engine
        self.create_keyspace(4)

    def create_keyspace(self, initial: int, name: str = "tk") -> None:
        self.run(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', "
            f"'datacenter1': 1}} AND tablets = {{'initial': {initial}}}"
        )

    def create(self, ttl: int = 86400, table: str = "tk.t") -> None:
        cdc = f"{{'enabled': true, 'ttl': {ttl}}}"
        self.run(f"CREATE TABLE {table} (pk int PRIMARY KEY, v int) WITH cdc = {cdc}")

    def run(self, cql: str) -> list[tuple[bytes | None, ...]]:
        result = self.engine.query(cql, (), QueryOptions())
        return result.rows if isinstance(result, Rows) else []

    def times(self, table: str = "t") -> list[int]:
        """Return the start times of a table's stream sets, in seconds from NOW, newest first."""
        where = f"WHERE keyspace_name = 'tk' AND table_name = '{table}'"
        found = self.run(f"SELECT timestamp FROM system.cdc_timestamps {where}")
        return [int.from_bytes(cell or b"", "big") // 1000 - NOW // SECOND for (cell,) in found]

    def sizes(self) -> list[int]:
        """Return the number of streams in each set of the only log."""
        (history,) = self.server.tablets.histories()
        return [len(each.streams) for each in history.sets]


@pytest.fixture
def tablets() -> Tablets:
    """A new cluster."""
    return Tablets()


def test_the_first_streams_begin_before_the_table(tablets: Tablets) -> None:
    """The first streams begin five seconds before the table, so that they can be used at once."""
    tablets.create()
    assert tablets.times() == [-5]
    tablets.run(f"INSERT INTO tk.t (pk, v) VALUES (1, 1) USING TIMESTAMP {NOW - 5 * SECOND}")
    with pytest.raises(ServerError, match="could not find any CDC streams for table"):
        tablets.run(f"INSERT INTO tk.t (pk) VALUES (1) USING TIMESTAMP {NOW - 5 * SECOND - 1}")
    assert len(tablets.run(f"SELECT * FROM {LOG}")) == 1


@pytest.mark.parametrize(("initial", "size"), [(0, 8), (1, 1), (3, 4), (16, 16)])
def test_a_keyspace_says_how_many_tablets(tablets: Tablets, initial: int, size: int) -> None:
    """The number of tablets is rounded up to a power of two. The default is one per shard."""
    tablets.create_keyspace(initial, "other")
    tablets.create(table="other.t")
    assert tablets.sizes() == [size]


def test_splits_and_merges_are_published_before_they_start(tablets: Tablets) -> None:
    """New stream sets start after a delay, like generations, and after all earlier sets."""
    tablets.create()
    assert tablets.server.split_tablets("tk", "t").timestamp == NOW // 1000 + 65_000
    assert tablets.server.merge_tablets("tk", "t").timestamp == NOW // 1000 + 65_001
    tablets.clock.advance(10 * SECOND)
    tablets.server.merge_tablets("tk", "t")
    assert tablets.times() == [75, 65, 65, -5]
    assert tablets.sizes() == [4, 8, 4, 2]


def test_one_tablet_cannot_be_merged(tablets: Tablets) -> None:
    """A single tablet cannot be merged, and a table that does not use tablets cannot be resized."""
    tablets.create_keyspace(1, "one")
    tablets.create(table="one.t")
    with pytest.raises(ValueError, match=r"one\.t has one tablet: expected two or more"):
        tablets.server.merge_tablets("one", "t")
    for resize in (tablets.server.merge_tablets, tablets.server.split_tablets):
        with pytest.raises(ValueError, match=r"ks\.t: expected a table of tablets with a CDC log"):
            resize("ks", "t")


def test_old_streams_are_forgotten(tablets: Tablets) -> None:
    """Streams are removed within a minute after all their rows have expired."""
    tablets.create(ttl=100)
    tablets.server.split_tablets("tk", "t")
    tablets.clock.advance(164 * SECOND)
    assert tablets.times() == [65, -5]
    tablets.clock.advance(59 * SECOND)
    assert tablets.times() == [65, -5]
    tablets.clock.advance(SECOND)
    assert tablets.times() == [65]
    states = tablets.run("SELECT stream_state FROM system.cdc_streams")
    assert [state for (state,) in states] == [b"\0"] * 8 + [b"\2"] * 8
    assert tablets.run("SELECT * FROM system.cdc_streams_history") == []
    with pytest.raises(ServerError, match="could not find any CDC streams"):
        tablets.run(f"INSERT INTO tk.t (pk) VALUES (1) USING TIMESTAMP {NOW}")


def test_logs_that_never_expire_keep_their_streams(tablets: Tablets) -> None:
    """If the log's TTL is 0, rows never expire, so no streams are removed."""
    tablets.create(ttl=0)
    tablets.server.split_tablets("tk", "t")
    tablets.clock.advance(10**9 * SECOND)
    assert tablets.times() == [65, -5]


def test_detached_logs_keep_their_streams(tablets: Tablets) -> None:
    """Streams are reused when CDC is enabled again, and removed when the log is dropped."""
    tablets.create()
    before = tablets.server.tablets.histories()
    tablets.run("ALTER TABLE tk.t WITH cdc = {'enabled': false}")
    assert tablets.server.tablets.histories() == before
    tablets.run("ALTER TABLE tk.t WITH cdc = {'enabled': true}")
    assert tablets.server.tablets.histories() == before
    tablets.run("ALTER TABLE tk.t WITH cdc = {'enabled': false}")
    tablets.run(f"DROP TABLE {LOG}")
    assert tablets.times() == []


@pytest.mark.parametrize("drop", ["DROP TABLE tk.t", "DROP KEYSPACE tk"])
def test_dropped_tables_have_no_streams(tablets: Tablets, drop: str) -> None:
    """Dropping a table removes its streams from all system tables. A new table has new streams."""
    tablets.create()
    (before,) = tablets.server.tablets.histories()
    tablets.server.split_tablets("tk", "t")
    tablets.run(drop)
    for table in ("cdc_timestamps", "cdc_streams", "cdc_streams_state", "cdc_streams_history"):
        assert tablets.run(f"SELECT * FROM system.{table}") == []
    tablets.clock.advance(7 * SECOND)
    if "KEYSPACE" in drop:
        tablets.create_keyspace(4)
    tablets.create()
    assert tablets.times() == [2]
    (after,) = tablets.server.tablets.histories()
    assert not set(before.newest.streams) & set(after.newest.streams)


def test_each_table_has_its_own_streams(tablets: Tablets) -> None:
    """Splitting the tablets of one table does not affect other tables in the keyspace."""
    tablets.create()
    tablets.create(table="tk.u")
    tablets.server.split_tablets("tk", "u")
    assert tablets.times("t") == [-5]
    assert tablets.times("u") == [65, -5]
    tablets.run("CREATE TABLE tk.without (pk int PRIMARY KEY)")
    assert tablets.times("without") == []


def test_clients_see_that_a_keyspace_has_tablets(tablets: Tablets) -> None:
    """`system_schema.scylla_keyspaces` lists the keyspaces that use tablets."""
    tablets.create_keyspace(0, "open")
    tablets.run(
        "CREATE KEYSPACE vk WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    found = tablets.run("SELECT keyspace_name, initial_tablets FROM system_schema.scylla_keyspaces")
    assert sorted(found) == [(b"open", b"\0\0\0\0"), (b"tk", b"\0\0\0\4")]
