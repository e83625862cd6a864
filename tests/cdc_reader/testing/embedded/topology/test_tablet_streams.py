"""Tests how the streams of tables that use tablets are created, resized, expired and dropped."""

import pytest
from attrs import define, field

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.clock import ManualClock
from cdc_reader.testing.embedded.query.engine import Engine
from cdc_reader.testing.embedded.query.model import QueryOptions
from cdc_reader.testing.embedded.query.result import Rows

SECOND = 1_000_000
NOW = 1_795_220_000 * SECOND


@define
class Tablets:
    """A two-node cluster without sockets, with 3 shards per node and a keyspace with tablets."""

    clock: ManualClock = field(factory=lambda: ManualClock(NOW))
    server: EmbeddedScylla = field(init=False)
    engine: Engine = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.server = EmbeddedScylla(clock=self.clock, nodes=2, vnodes=1, shards=3, seed=1)
        self.engine = self.server._engine(self.server.nodes[0])
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


def test_one_tablet_cannot_be_merged(tablets: Tablets) -> None:
    """A single tablet cannot be merged, and a table that does not use tablets cannot be resized."""
    tablets.create_keyspace(1, "one")
    tablets.create(table="one.t")
    with pytest.raises(ValueError, match=r"one\.t has one tablet: expected two or more"):
        tablets.server.merge_tablets("one", "t")
    for resize in (tablets.server.merge_tablets, tablets.server.split_tablets):
        with pytest.raises(ValueError, match=r"ks\.t: expected a table of tablets with a CDC log"):
            resize("ks", "t")


def test_clients_see_that_a_keyspace_has_tablets(tablets: Tablets) -> None:
    """`system_schema.scylla_keyspaces` lists the keyspaces that use tablets."""
    tablets.create_keyspace(0, "open")
    tablets.run(
        "CREATE KEYSPACE vk WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    found = tablets.run("SELECT keyspace_name, initial_tablets FROM system_schema.scylla_keyspaces")
    assert sorted(found) == [(b"open", b"\0\0\0\0"), (b"tk", b"\0\0\0\4")]
