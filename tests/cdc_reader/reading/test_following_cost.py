"""The number of queries that `follow` sends after idle days and for idle tables.

The generation has 512 streams, in 8 chunks of 64. Queries of the schema and the generations are
counted separately, because their number does not depend on the number of streams.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from attrs import define, field

from cdc_reader._time import duration_micros
from cdc_reader.cluster.log import CdcTable
from cdc_reader.config import ReadConfig, poll_interval
from cdc_reader.cql.names import TableName
from cdc_reader.reading.delivery import WindowComplete
from cdc_reader.reading.follower import Follower
from cdc_reader.reading.progress import Checkpoint
from cdc_reader.testing import EmbeddedScylla, ManualClock
from cdc_reader.testing.in_process import InProcessConnection, RecordedQuery
from tests.cdc_reader.support.tuned import tuned

_EPOCH = 1_700_000_000_000_000
_CHUNKS = 8
_SMALL_QUERIES_A_LOOK = 8

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
