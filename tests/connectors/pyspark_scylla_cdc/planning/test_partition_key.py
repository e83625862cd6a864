"""Reading one partition key takes few queries on any cluster, and yields only its rows."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cassandra.cluster import Session

from cdc_reader import CdcReader
from cdc_reader._time import SystemClock, format_timestamp
from cdc_reader.cql.schema import Operation
from cdc_reader.errors import ConfigurationError
from cdc_reader.testing import EmbeddedScylla, Fault, ManualClock
from cdc_reader.testing.cql_session import open_session
from pyspark_scylla_cdc.batch import BatchReader
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import schema_of
from tests.cdc_reader.support.tuned import tuned
from tests.connectors.pyspark_scylla_cdc.support.readers import batch_reader

SECOND = 1_000_000
KEYS = range(60)
ID = uuid.uuid4()
GENERATIONS = 3


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    """The cluster's clock, far enough in the past that all rows have settled for Spark."""
    return ManualClock(SystemClock().now() - 600 * SECOND)


@pytest.fixture(scope="module")
def cluster(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """A cluster that grew twice, and whose tables contain rows of all keys in each generation."""
    with EmbeddedScylla(clock=clock, vnodes=32, ring_delay_ms=0) as server:
        session = open_session(server.host, server.port)
        session.use_client_timestamp = False
        write(session, clock, server)
        session.cluster.shutdown()
        yield server


def write(session: Session, clock: ManualClock, server: EmbeddedScylla) -> None:
    """Create the tables, and write each key in each generation."""
    session.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
    )
    cdc = "WITH cdc = {'enabled': true, 'postimage': true, 'ttl': 0}"
    session.execute(f"CREATE TABLE ks.t (pk int PRIMARY KEY, v int) {cdc}")
    session.execute(f"CREATE TABLE ks.c (a text, b uuid, v int, PRIMARY KEY ((a, b))) {cdc}")
    for value in range(GENERATIONS):
        clock.advance(SECOND)
        for pk in KEYS:
            session.execute("INSERT INTO ks.t (pk, v) VALUES (%s, %s)", (pk, value))
            session.execute("INSERT INTO ks.c (a, b, v) VALUES (%s, %s, %s)", (str(pk), ID, value))
        clock.advance(SECOND)
        if value + 1 < GENERATIONS:
            server.join(vnodes=32)


@pytest.fixture
def read(cluster: EmbeddedScylla) -> Callable[..., list[dict[str, Any]]]:
    """Read a table of the cluster as an executor does."""

    def read(*left_out: str, **given: str) -> list[dict[str, Any]]:
        where = {"hosts": cluster.contact_point, "keyspace": "ks", "consistencyLevel": "ONE"}
        options = SourceOptions.parse({**where, "table": "t", **given})
        reader = batch_reader(options)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return [row for batch in batches for row in batch.drop_columns(list(left_out)).to_pylist()]

    return read


def test_one_query_a_generation(
    cluster: EmbeddedScylla, read: Callable[..., list[dict[str, Any]]]
) -> None:
    """A key takes one query per generation, and the query reads only rows of the key."""
    for pk in (0, 7, 41):
        asked = Fault("delay", "ks.t_scylla_cdc_log", times=None, seconds=1e-6)
        with cluster.faults.during(asked):
            rows = read(partitionKey=json.dumps({"pk": pk}), format="changes")
            queries = cluster.faults.struck(asked)
        assert [(row["pk"], row["v"]) for row in rows] == [(pk, v) for v in range(GENERATIONS)]
        assert queries == GENERATIONS


def test_a_key_of_several_columns(read: Callable[..., list[dict[str, Any]]]) -> None:
    """The key is given as JSON. Each format returns only the changes of the partition."""
    key = json.dumps({"a": "7", "b": str(ID)})
    rows = read(table="c", partitionKey=key)
    assert {(row["a"], row["b"]) for row in rows} == {("7", str(ID))}
    assert len(rows) == 2 * GENERATIONS
    assert len(read(table="c", partitionKey=key, format="envelope", minPartitions="4")) == 3


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ('{"pk": "seven"}', "key column pk is 'seven': give a value of type int"),
        ('{"ck": 7}', "give a JSON object with the columns of the partition key: pk"),
        ("7", "give a JSON object"),
        ("{", "give a JSON object"),
    ],
)
def test_refused(read: Callable[..., list[dict[str, Any]]], key: str, expected: str) -> None:
    """An invalid partition key raises an error that names the option."""
    with pytest.raises(ConfigurationError, match=f"^partitionKey is .*{expected}"):
        read(partitionKey=key)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("double", ["NaN", "0.0", "-0.0"]),
        ("time", ["'01:02:03'"]),
        ("date", ["0", "4294967295", "'2026-11-28'"]),
        ("timestamp", ["253402300800000", "-9223372036854775", "0"]),
        ("frozen<list<double>>", ["[NaN]", "[0.0]", "[-0.0]", "[1.5, 2]"]),
        ("frozen<set<uuid>>", ["{00000000-0000-4000-8000-000000000001, " + str(ID) + "}"]),
        ("frozen<map<boolean, text>>", ["{true: 'x', false: 'y'}"]),
        ("frozen<tuple<int, text>>", ["(1, null)", "(null, 'x')"]),
    ],
)
def test_keys_as_changes_show_them(
    cluster: EmbeddedScylla,
    read: Callable[..., list[dict[str, Any]]],
    kind: str,
    values: list[str],
) -> None:
    """A key as `Change.to_dict` writes it finds the rows of this key alone."""
    name = f"k{abs(hash(kind))}"
    cluster.execute(f"CREATE TABLE ks.{name} (k {kind} PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    for value in values:
        cluster.execute(f"INSERT INTO ks.{name} (k) VALUES ({value})")
    with CdcReader(cluster.contact_point, f"ks.{name}", clock=SystemClock()) as reader:
        keys = [json.dumps(change.to_dict()["key"]) for change in reader.changes()]
    assert len({*keys}) == len(values)
    for key in keys:
        rows = read("k", table=name, partitionKey=key)  # not all keys are in Python's calendar
        assert len(rows) == 1


@pytest.mark.parametrize("count", [1, 3])
def test_ranges_of_the_ring(
    cluster: EmbeddedScylla,
    clock: ManualClock,
    read: Callable[..., list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
    count: int,
) -> None:
    """Read by ranges, a partition takes one query per generation, and each row is read once.

    The rows span too short a time to be divided.
    """
    asked = Fault("delay", "ks.t_scylla_cdc_log", times=None, seconds=1e-6)
    given = {"endingTimestamp": format_timestamp(clock.now()), "maxPartitions": str(count)}
    given["confidenceWindow"] = "0s"  # no query looks for rows that have not settled
    monkeypatch.setattr("pyspark_scylla_cdc.executors.log.FEW_QUERIES", 0)
    with cluster.faults.during(asked), tuned(strategy="ranges"):
        rows = read(format="changes", **given)
        queries = cluster.faults.struck(asked)
    found = sorted((row["pk"], row["v"]) for row in rows)
    assert found == [(pk, v) for pk in KEYS for v in range(GENERATIONS)]
    assert queries <= GENERATIONS + count - 1 + 2


def test_partitions_of_one_plan_may_be_read_in_different_ways(
    cluster: EmbeddedScylla, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions may be read by different strategies. Each row is still read once."""
    monkeypatch.setattr("pyspark_scylla_cdc.executors.log.FEW_QUERIES", 0)
    given = {"hosts": cluster.contact_point, "keyspace": "ks", "table": "t"}
    options = SourceOptions.parse({**given, "consistencyLevel": "ONE"})
    reader = BatchReader(options, schema_of(options), ("pk", "v", "cdc$operation"))
    for first in (0, 1):
        rows = []
        for number, part in enumerate(reader.partitions(), first):
            with tuned(strategy=("streams", "ranges")[number % 2]):
                rows += [
                    (row["pk"], row["v"])
                    for batch in reader.read(part)
                    for row in batch.to_pylist()
                    if row["cdc$operation"] == Operation.INSERT
                ]
        assert sorted(rows) == [(pk, v) for pk in KEYS for v in range(GENERATIONS)]
