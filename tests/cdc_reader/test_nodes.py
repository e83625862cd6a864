"""A reader finds all rows while nodes join, leave and fail, and while tablets split.

The tests start a separate cluster: the embedded one, or a real one in containers.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import define, field
from cassandra import ConsistencyLevel, OperationTimedOut, Unavailable, WriteTimeout
from cassandra.cluster import Session
from cassandra.query import PreparedStatement
from tenacity import Retrying, retry_if_not_result, wait_fixed

from cdc_reader import CdcReader
from cdc_reader.testing import ScyllaNodes

pytestmark = pytest.mark.timeout(3_600)  # a slow server may take long to start a node

ROWS_AFTERWARDS = 50
_GENERATIONS = (
    "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
)


@define
class Written:
    """A table with three replicas, and the rows whose writes were attempted or acknowledged."""

    nodes: ScyllaNodes
    session: Session
    keyspace: str
    tried: list[int] = field(factory=list)
    acknowledged: list[int] = field(factory=list)
    _numbers: Iterator[int] = field(factory=itertools.count)
    _insert: PreparedStatement = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._insert = self.session.prepare(f"INSERT INTO {self.keyspace}.t (p, v) VALUES (?, ?)")
        self._insert.consistency_level = ConsistencyLevel.QUORUM

    def write(self) -> None:
        """Write another row."""
        number = next(self._numbers)
        self.tried.append(number)
        try:
            self.session.execute(self._insert, (number % 100, number))
        except (OperationTimedOut, Unavailable, WriteTimeout):
            return  # the row may or may not be in the log
        self.acknowledged.append(number)

    def write_during(self, event: Callable[[], Any]) -> None:
        """Write rows until `event`, which runs in a thread, returns, and then a few more."""
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(event)
            while not running.done():
                self.write()
            running.result()
        for _ in range(ROWS_AFTERWARDS):
            self.write()

    def await_streams(self, known: int, cql: str = _GENERATIONS) -> None:
        """Wait until there are more than `known` generations and the newest has begun."""

        def operates() -> bool:
            starts = self.starts(cql)
            return len(starts) > known and max(starts) < datetime.now(UTC).replace(tzinfo=None)

        Retrying(wait=wait_fixed(0.1), retry=retry_if_not_result(bool))(operates)

    def starts(self, cql: str = _GENERATIONS) -> list[datetime]:
        """Return the starts of the generations that the query `cql` selects."""
        return [time for (time,) in self.session.execute(cql)]

    def check_log(self) -> None:
        """Check that the log contains each acknowledged row, and no row more than once."""
        acknowledged = set(self.acknowledged)
        with CdcReader(self.nodes.contact_point, f"{self.keyspace}.t") as reader:
            rows = [row for batch in reader.batches() for row in batch.to_pylist()]
        found = [row["v"] for row in rows]
        assert len(found) == len(set(found))
        assert acknowledged <= set(found) <= set(self.tried)


@pytest.fixture(params=[False], ids=["vnodes"])
def written(request: pytest.FixtureRequest, scylla_nodes: ScyllaNodes) -> Iterator[Written]:
    """A table that uses vnodes, or tablets if the test requests them."""
    keyspace = f"ks_{uuid.uuid4().hex[:12]}"
    session = scylla_nodes.connect()
    metadata = session.cluster.metadata.keyspaces
    described = metadata["system_schema"].tables.get("scylla_keyspaces")
    has_tablets = described is not None and "initial_tablets" in described.columns
    if request.param and "cdc_streams" not in metadata["system"].tables:
        pytest.skip("this version has no CDC on tablets")
    replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}"
    flavour = f" AND tablets = {{'enabled': {str(request.param).lower()}}}" if has_tablets else ""
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {replication}{flavour}")
    session.execute(
        f"CREATE TABLE {keyspace}.t (p int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}"
    )
    yield Written(scylla_nodes, session, keyspace)
    session.execute(f"DROP KEYSPACE {keyspace}")


def test_a_node_joins_and_leaves_again(written: Written) -> None:
    """When a node joins and leaves, the reader moves to the new generation each time."""
    nodes, before = written.nodes, written.starts()

    def event() -> None:
        joined = nodes.join()
        written.await_streams(len(before))
        nodes.leave(joined)
        assert joined not in nodes.addresses
        nodes.check_and_repair_streams()
        written.await_streams(len(before) + 1)

    written.write_during(event)
    assert len(written.starts()) > len(before) + 1
    written.check_log()


def test_a_node_is_killed_and_comes_back(written: Written) -> None:
    """A killed node does not affect reads at QUORUM, which need only two of the three replicas."""
    nodes, victim = written.nodes, written.nodes.addresses[-1]

    def event() -> None:
        nodes.take_down(victim)
        written.check_log()
        nodes.bring_up(victim)

    written.write_during(event)
    assert victim in nodes.addresses
    written.check_log()


@pytest.mark.parametrize("written", [True], ids=["tablets"], indirect=True)
def test_tablets_split(written: Written) -> None:
    """When tablets split, the reader moves to the new set of streams."""
    cql = (
        "SELECT timestamp FROM system.cdc_timestamps "
        f"WHERE keyspace_name = '{written.keyspace}' AND table_name = 't'"
    )
    before = written.starts(cql)

    def event() -> None:
        written.session.execute(
            f"ALTER TABLE {written.keyspace}.t WITH tablets = {{'min_tablet_count': 32}}"
        )
        written.await_streams(len(before), cql)

    written.write_during(event)
    written.check_log()
