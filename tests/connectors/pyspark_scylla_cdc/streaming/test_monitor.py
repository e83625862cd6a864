"""The driver's statistics of a micro-batch, which the partitions pass to the tasks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc.executors.reporting import ReportedPartition
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.reports import Address, Plan
from pyspark_scylla_cdc.sessions import connection_of
from pyspark_scylla_cdc.spark_versions import ReadMaxFiles
from pyspark_scylla_cdc.streaming import monitor
from tests.connectors.pyspark_scylla_cdc.support.readers import stream_reader

if TYPE_CHECKING:
    from cassandra.cluster import Session

    from pyspark_scylla_cdc.streaming.stream import StreamReader

SECOND = 1_000_000
LIMIT = ReadMaxFiles(1)
REPORT_TO = {"reportTo": str(Address("127.0.0.1", 9, bytes(16)))}
Make = Callable[..., "StreamReader"]


@pytest.fixture
def make(cluster: EmbeddedScylla, session: Session, clock: ManualClock) -> Iterator[Make]:
    """Creates readers that start at the current time, with additional options."""
    session.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
    )
    session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    opened = set()

    def make(**more: str) -> StreamReader:
        known = {"hosts": cluster.contact_point, "path": "ks.t", "consistencyLevel": "ONE"}
        parsed = SourceOptions.parse({**known, "startingTimestamp": "latest", **more})
        opened.add(connection_of(parsed.connection(), parsed.read))
        return stream_reader(parsed, clock)

    yield make
    for connection in opened:
        connection.close()


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """All plans, in order of their creation."""
    made: list[Plan] = []

    def plan(*facts: Any) -> Plan:
        made.append(Plan(*facts))
        return made[-1]

    monkeypatch.setattr(monitor, "Plan", plan)
    return made


def rows(reader: StreamReader, partitions: Any) -> list[int]:
    """Return the keys of the rows of these partitions, as an executor reads them."""
    sent = pickle.loads(pickle.dumps(partitions))
    batches = (batch for part in sent for batch in reader.read(part))
    return sorted(row["pk"] for batch in batches for row in batch.to_pylist())


def test_reported_partitions_have_the_same_rows(
    make: Make, session: Session, clock: ManualClock
) -> None:
    """Reporting does not change the rows of a partition. Outside a task, nothing is reported."""
    plain, told = make(), make(**REPORT_TO)
    start = plain.initialOffset()
    for pk in range(20):
        session.execute(f"INSERT INTO ks.t (pk, v) VALUES ({pk}, 0)")
    clock.advance(120 * SECOND)
    end = plain.latestOffset(start, LIMIT)
    expected, partitions = plain.partitions(start, end), told.partitions(start, end)
    assert rows(told, partitions) == rows(plain, expected) == list(range(20))
    assert len(partitions) == len(expected)
    for place, part in enumerate(partitions):
        assert isinstance(part, ReportedPartition)
        assert (part.place, part.plan.partitions) == (place, len(expected))
        assert repr(expected[place]) in repr(part)
        assert REPORT_TO["reportTo"] not in repr(part)


def test_the_plan_tells_what_the_driver_knows(
    make: Make, session: Session, clock: ManualClock, plans: list[Plan], cluster: EmbeddedScylla
) -> None:
    """A plan counts the queries since the last plan, including those that check an idle log."""
    reader = make(**REPORT_TO)
    offset = reader.initialOffset()
    for _ in range(2):
        session.execute("INSERT INTO ks.t (pk, v) VALUES (1, 0)")
        clock.advance(40 * SECOND)
        end = reader.latestOffset(offset, LIMIT)
        reader.partitions(offset, end)
        offset = end
    first, second = plans
    assert (first.table, second.end) == ("ks.t", offset["position"])
    assert first.generation == cluster.cluster.generations[-1].start_us
    assert first.stats.queries > 1
    assert second.stats.queries <= first.stats.queries
    assert reader.partitions(offset, offset) == []
    assert len(plans) == 2


def test_late_rows_that_are_only_reported(
    make: Make, session: Session, clock: ManualClock, plans: list[Plan]
) -> None:
    """The number of late rows is in the plan of the next micro-batch, and in no other plan."""
    reader = make(**REPORT_TO, lateRows="report")
    offset = reader.initialOffset()
    for second in range(240):
        if second == 120:
            for age in (70, 80):
                at = clock.now() - age * SECOND
                session.execute(f"INSERT INTO ks.t (pk, v) VALUES ({age}, 0) USING TIMESTAMP {at}")
        session.execute(f"INSERT INTO ks.t (pk, v) VALUES ({second}, 0)")
        clock.advance(SECOND)
        if (end := reader.latestOffset(offset, LIMIT)) != offset:
            reader.partitions(offset, end)
            offset = end
    assert sum(plan.late_rows for plan in plans) == 2


def test_readers_print_what_they_read(make: Make) -> None:
    """The repr of a reader shows its table."""
    assert repr(make()) == "StreamReader(ks.t)"
