"""The number of queries that `follow` sends after idle days and for idle tables.

The generation has 512 streams, in 8 chunks of 64. Queries of the schema and the generations are
counted separately, because their number does not depend on the number of streams.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from attrs import define, field

from cdc_reader._time import duration_micros
from cdc_reader.cluster.log import CdcTable
from cdc_reader.config import ReadConfig, poll_interval
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import WindowComplete
from cdc_reader.reading.follower import Follower
from cdc_reader.testing import EmbeddedScylla, ManualClock
from cdc_reader.testing.in_process import InProcessConnection, RecordedQuery
from tests.cdc_reader.support.tuned import tuned

_EPOCH = 1_700_000_000_000_000
_CHUNKS = 8
_SMALL_QUERIES_A_LOOK = 4
_POLL = 5_000_000
_ANNOUNCED = "system_distributed.cdc_generation_timestamps"

pytestmark = pytest.mark.needs("faults", "topology")


@define
class _Counted:
    """A table with 512 streams, and counts of the queries of its log and of other tables."""

    clock: ManualClock = field(factory=lambda: ManualClock(_EPOCH))
    of_log: int = 0
    others: int = 0

    def count(self, asked: RecordedQuery) -> None:
        if "cdc$time" in asked.query.cql and asked.query.columns:
            self.of_log += 1
        else:
            self.others += 1

    def follower(self, config: ReadConfig, start: int, ttl: int = 0) -> Follower:
        server = EmbeddedScylla(clock=self.clock, vnodes=256, shards=2)
        server.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
            "'replication_factor': 1} AND tablets = {'enabled': false}"
        )
        server.execute(
            f"CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {{'enabled': true, 'ttl': {ttl}}}"
        )
        connection = InProcessConnection(server, config, before=self.count)
        table = CdcTable(connection, TableName("ks", "t"))
        return Follower(table, self.clock, config, Checkpoint(start))


class Rounds(ManualClock):
    """A clock that advances by a poll interval when all `readers` sleep."""

    def __init__(self, readers: int) -> None:
        super().__init__(_EPOCH)
        self._all_sleep = threading.Barrier(readers, self._next)

    def _next(self) -> None:
        self.advance(_POLL)

    def sleep(self, micros: int, wake: threading.Event) -> None:
        del micros, wake
        self._all_sleep.wait(60)


@pytest.mark.parametrize("tablets", [False, True])
def test_tables_of_a_connection_share_what_an_idle_pass_asks(tablets: bool) -> None:
    """A pass of twenty idle tables asks once for the schema's version and for generations.

    Tables that use tablets have their own generations.
    """
    tables, passes = 20, 40
    clock, asked = Rounds(tables), Counter[str]()
    server = EmbeddedScylla(clock=clock, vnodes=8, nodes=3)
    server.execute(
        "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
        f"'replication_factor': 1}} AND tablets = {{'enabled': {str(tablets).lower()}}}"
    )
    names = [TableName("ks", f"t{number}") for number in range(tables)]
    for name in names:
        server.execute(f"CREATE TABLE {name} (p int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    start, config = clock.advance(12 * _POLL), ReadConfig(late_rows="ignore")
    end = start + (passes - 6) * _POLL  # six polls make a confidence window
    connection = InProcessConnection(
        server, config, before=lambda query: asked.update([query.query.cql])
    )

    def follow(name: TableName) -> None:
        list(Follower(CdcTable(connection, name), clock, config, Checkpoint(start)).follow(end))

    with ThreadPoolExecutor(tables) as threads:
        list(threads.map(follow, names))
    sent = Counter(cql.partition(" WHERE ")[0] for cql in asked.elements())
    own = tables * (passes if tablets else 0)
    begun = 7 * tables  # questions of each table before its first pass, and after its last
    assert sent["SELECT schema_version FROM system.local"] <= passes + begun
    kind = "timestamp FROM system.cdc_timestamps" if tablets else f"time FROM {_ANNOUNCED}"
    assert passes - 1 <= sent[f"SELECT {kind}"] <= passes + begun + own
    distributed = sum(count for cql, count in sent.items() if "system_distributed" in cql)
    assert distributed < 2 * passes + tables  # each table reads the streams once


@pytest.mark.parametrize(("strategy", "most"), [("streams", 20 * _CHUNKS), ("ranges", 20)])
def test_a_cold_start_over_an_idle_week_takes_few_queries(strategy: str, most: int) -> None:
    """After an idle week, growing windows need at most 20 queries for each chunk of streams."""
    counted = _Counted()
    follower = counted.follower(ReadConfig(late_rows="ignore"), _EPOCH)
    now = counted.clock.advance(duration_micros(timedelta(days=7)))
    with tuned(strategy=strategy):
        last = list(follower.follow(now - duration_micros(timedelta(minutes=1))))[-1]
    assert last.window.end == now - duration_micros(timedelta(minutes=1))
    assert _CHUNKS * (strategy == "streams") < counted.of_log <= most


@pytest.mark.parametrize("delivery", ["settled", pytest.param("eager", marks=pytest.mark.slow)])
def test_an_idle_table_costs_one_query_per_chunk_and_poll(delivery: str) -> None:
    """Each poll of an idle table sends one query per chunk, however long the table has been idle.

    Eager delivery also reads each settled window once, before the position moves past it.
    """
    counted = _Counted()
    config = ReadConfig(delivery=delivery, poll_interval=timedelta(seconds=5))
    follower = counted.follower(config, _EPOCH)
    with tuned(strategy="streams"):
        deliveries = list(follower.follow(_EPOCH + duration_micros(timedelta(minutes=10))))
    looks = 1 + -(-(counted.clock.now() - _EPOCH) // poll_interval(config))
    assert len(deliveries) <= looks
    assert 0 < counted.of_log <= looks * _CHUNKS * (2 if delivery == "eager" else 1)
    assert 0 < counted.others <= looks * _SMALL_QUERIES_A_LOOK + 2 * _SMALL_QUERIES_A_LOOK


def test_the_queries_of_a_search_for_late_rows_are_counted() -> None:
    """A search for late rows counts each of its queries of the log once."""
    counted = _Counted()
    config = ReadConfig(late_rows="deliver")
    follower = counted.follower(config, _EPOCH, ttl=86_400)
    with tuned(strategy="ranges"):
        found = list(follower.follow(_EPOCH + duration_micros(timedelta(minutes=10))))
    complete = [each for each in found if isinstance(each, WindowComplete)]
    assert any(each.late for each in complete)
    assert sum(each.queries for each in complete) == counted.of_log
