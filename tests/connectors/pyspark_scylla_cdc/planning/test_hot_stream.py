"""A partition key that gets nearly all writes: all Spark partitions share its rows."""

from __future__ import annotations

import struct
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sf

from cdc_reader._time import SystemClock, format_timestamp
from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc import fold
from pyspark_scylla_cdc.batch import BatchReader
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import schema_of
from tests.cdc_reader.support.tuned import tuned
from tests.connectors.pyspark_scylla_cdc.support.readers import offset_at, stream_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = 1_000_000
DAY = 86_400 * SECOND
WRITES, ROWS = 10_000, 20_000
EVERY = SECOND // 50
PARTITIONS = 4
LOG = "ks.t_scylla_cdc_log"
KEY = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no")


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    """The cluster's clock. It starts a day in the past, and the table is created in the present.

    The streams are thus a day older than the table, and the writes are in the future according to
    Spark's clock.
    """
    return ManualClock(SystemClock().now() - DAY)


@pytest.fixture(scope="module")
def cluster(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """A cluster with 32 streams. One key is written for minutes, and others occasionally."""
    with EmbeddedScylla(clock=clock, vnodes=16, shards=2) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
            "'datacenter1': 1} AND tablets = {'enabled': false}"
        )
        clock.advance(DAY)
        server.execute(
            "CREATE TABLE ks.t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) "
            "WITH cdc = {'enabled': true, 'postimage': true, 'ttl': 0}"
        )
        for number in range(WRITES):
            clock.advance(EVERY)
            values = 0 if number % 100 else number, number % 50, number
            cells = [struct.pack(">i", value) for value in values]
            server.execute("INSERT INTO ks.t (pk, ck, v) VALUES (?, ?, ?)", cells)
        clock.advance(SECOND)
        yield server


@pytest.fixture
def given(cluster: EmbeddedScylla) -> dict[str, str]:
    """The options for reading the table."""
    return {
        "hosts": cluster.contact_point,
        "keyspace": "ks",
        "table": "t",
        "consistencyLevel": "ONE",
        "maxPartitions": str(PARTITIONS),
    }


@pytest.fixture
def load(spark: SparkSession, given: dict[str, str], clock: ManualClock) -> Any:
    """Loads the whole log. According to Spark's clock, the end of the log is in the future."""

    def load(**more: str) -> DataFrame:
        end = {"endingTimestamp": format_timestamp(clock.now())}
        return spark.read.format("scylla_cdc").options(**given, **end, **more).load()

    return load


def in_log(cluster: EmbeddedScylla) -> Counter[tuple[bytes, uuid.UUID, int]]:
    """Return the keys of all rows in the log."""
    columns = ", ".join(f'"{name}"' for name in KEY)
    return Counter(
        (stream or b"", uuid.UUID(bytes=time), int.from_bytes(number or b"", "big"))
        for stream, time, number in cluster.execute(f"SELECT {columns} FROM {LOG}")
    )


@pytest.mark.spark
def test_a_batch_is_read_in_equal_parts(cluster: EmbeddedScylla, load: Any) -> None:
    """No partition has much more than an equal share, and each row of the log is read once."""
    frame = load().select(*KEY, sf.spark_partition_id().alias("partition"))
    rows = frame.collect()
    counts = Counter(row["partition"] for row in rows)
    assert len(counts) == PARTITIONS
    assert max(counts.values()) < 1.1 * ROWS / PARTITIONS
    found = Counter((bytes(row[0]), uuid.UUID(row[1]), row[2]) for row in rows)
    assert found == in_log(cluster)
    assert found.total() == ROWS


@pytest.mark.slow
@pytest.mark.spark
def test_changes_fold_to_the_table(cluster: EmbeddedScylla, load: Any) -> None:
    """The last change determines each row, whichever partitions contain its changes."""
    table = fold(load(format="changes", includeDelta="true")).collect()
    cells = cluster.execute("SELECT pk, ck, v FROM ks.t")
    kept = [tuple(int.from_bytes(cell or b"", "big") for cell in row) for row in cells]
    assert sorted(tuple(row) for row in table) == sorted(kept)


@pytest.mark.slow
@pytest.mark.parametrize(("least", "expected"), [(None, 1), ("1", 1), ("2", PARTITIONS)])
def test_a_stream_spreads_a_key_only_where_that_is_wanted(
    cluster: EmbeddedScylla,
    given: dict[str, str],
    clock: ManualClock,
    least: str | None,
    expected: int,
) -> None:
    """Unless more partitions are requested, one partition contains all rows of a key, in order."""
    options = SourceOptions.parse({**given, **({"minPartitions": least} if least else {})})
    reader = stream_reader(options, clock)
    end = offset_at(reader, clock.now())
    partitions = reader.partitions(reader.initialOffset(), end)
    assert repr(partitions) == repr(reader.partitions(reader.initialOffset(), end))
    found = [
        [row for batch in reader.read(part) for row in batch.to_pylist()] for part in partitions
    ]
    hot = [[row["_commit_timestamp"] for row in rows if row["pk"] == 0] for rows in found]
    assert sum(1 for times in hot if times) == expected
    assert all(times == sorted(times) for times in hot)
    assert sum(map(len, found)) == ROWS == in_log(cluster).total()


@pytest.mark.parametrize(("least", "partitions"), [("1", 1), ("3", 3)])
def test_a_partition_key_is_asked_for_once(
    cluster: EmbeddedScylla,
    given: dict[str, str],
    clock: ManualClock,
    least: str,
    partitions: int,
) -> None:
    """Reading a key's whole history takes one query, unless more partitions are requested."""
    end = {"endingTimestamp": format_timestamp(clock.now())}
    key = {"partitionKey": '{"pk": 0}', "minPartitions": least}
    options = SourceOptions.parse({**given, **end, **key})
    schema = schema_of(options)
    reader = BatchReader(options, schema, ("pk",))
    parts = reader.partitions()
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert len(parts) == partitions
    assert partitions > 1 or repr(parts).endswith("Z), spans=1, streams=2)]")
    kept = cluster.execute(f"SELECT pk FROM {LOG}")
    assert len(rows) == sum(1 for (cell,) in kept if cell == bytes(4)) > ROWS * 0.9


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ranges", "auto"])
def test_chosen_columns(
    cluster: EmbeddedScylla,
    given: dict[str, str],
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    strategy: str,
) -> None:
    """Only the chosen columns are returned, although the source needs to read others."""
    end = {"endingTimestamp": format_timestamp(clock.now())}
    options = SourceOptions.parse({**given, **end})
    monkeypatch.setattr("pyspark_scylla_cdc.executors.log.FEW_QUERIES", 0)
    reader = BatchReader(options, schema_of(options), ("pk",))
    with tuned(strategy=strategy):
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert {tuple(batch.schema.names) for batch in batches} == {("pk",)}
    assert sum(batch.num_rows for batch in batches) == in_log(cluster).total()
