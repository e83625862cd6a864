"""A real cluster's log with three generations, loaded into the server and followed."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc_reader import CdcReader, ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.cql.timeuuid import micros, order_key
from cdc_reader.reading.delivery import RowsRead
from cdc_reader.streams.generation import StreamGroup
from cdc_reader.streams.stream import StreamId
from cdc_reader.testing.clock import ManualClock
from tests.recordings.comparison import Result
from tests.recordings.decoding import decoded
from tests.recordings.loading import load_rows, published, read_recording

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.needs("generations")

RECORDED = read_recording(Path(__file__).parents[2] / "data" / "scylla-5.2-generations.json.gz")
LOG = Result.from_recording(RECORDED["log_t"])
PLACES = [(bytes(row[0] or b""), bytes(row[1] or b"")) for row in LOG.rows]
TIMES = sorted(micros(time) for _, time in PLACES)


@pytest.fixture
def table(scylla: Scylla, keyspace: str) -> Iterator[str]:
    """A keyspace whose table `t` has the recorded log, which spans three generations."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (pk int, ck int, v text, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'ttl': 0}"
    )
    load_rows(scylla.session, TableName(keyspace, "t").log, LOG)
    described: dict[int, list[StreamGroup]] = defaultdict(list)
    for row in decoded(Result.from_recording(RECORDED["phases"][-1]["streams"])):
        streams = tuple(map(StreamId, row["streams"]))
        start = round(row["time"].timestamp() * 1_000)
        described[start].append(StreamGroup(row["range_end"], streams))
    with ExitStack() as stack:
        for start, groups in described.items():
            stack.enter_context(published(scylla.session, start, groups))
        yield keyspace


def place(row: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return a row's stream and time, which identify it because each record has one row."""
    return row["cdc$stream_id"], uuid.UUID(row["cdc$time"]).bytes


@pytest.mark.parametrize("seconds", [2, 7, 600])
def test_following_across_switches_loses_and_repeats_nothing(
    connection: ConnectionConfig, table: str, seconds: int
) -> None:
    """Following a log across generations neither loses nor repeats a row.

    The rows of each stream are in order, and so are the rows of each key across generations.
    """
    clock = ManualClock(TIMES[-1] + 60_000_000)
    config = ReadConfig(window=timedelta(seconds=seconds), fetch_size=10)
    rows: list[dict[str, Any]] = []
    with CdcReader(connection, f"{table}.t", config=config, clock=clock) as reader:
        for delivery in reader.follow(TIMES[0]):
            if isinstance(delivery, RowsRead):
                rows += delivery.batch.to_pylist()
            elif delivery.position > TIMES[-1]:
                reader.stop()
    assert sorted(map(place, rows)) == sorted(PLACES)
    by_key: dict[tuple[str, Any], list[Any]] = defaultdict(list)
    for row in rows:
        stream, time = place(row)
        by_key["stream", stream].append(order_key(time))
        by_key["pk", row["pk"]].append(micros(time))
    assert all(times == sorted(times) for times in by_key.values())


def test_a_bounded_read_of_all_generations_has_each_row_once(
    connection: ConnectionConfig, table: str
) -> None:
    """A bounded read with one window for all generations returns each row once."""
    with CdcReader(connection, f"{table}.t") as reader:
        batches = reader.batches(TIMES[0], TIMES[-1] + 1)
        rows = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(map(place, rows)) == sorted(PLACES)
