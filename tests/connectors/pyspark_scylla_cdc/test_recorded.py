"""Logs recorded on a real ScyllaDB, loaded into the server and read with Spark."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from attrs import frozen
from cassandra.util import OrderedMapSerializedKey, SortedSet
from pyspark.sql import Row

from cdc_reader import CdcReader, ChangeFormat
from cdc_reader._time import datetime_micros, format_timestamp
from cdc_reader.cql.names import TableName
from cdc_reader.cql.timeuuid import micros, order_key
from cdc_reader.cql.types import Native, UserType
from cdc_reader.streams.generation import StreamGroup
from cdc_reader.streams.stream import StreamId
from pyspark_scylla_cdc import fold
from pyspark_scylla_cdc.spark_versions import TELLS_START
from tests.connectors.pyspark_scylla_cdc.executors.test_envelope import validator
from tests.connectors.pyspark_scylla_cdc.support.available_now import read_available
from tests.recordings.comparison import Result
from tests.recordings.decoding import decoded
from tests.recordings.loading import load_rows, published, read_recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from cdc_reader.testing import Scylla

DATA = Path(__file__).parents[2] / "data"
HISTORIES = read_recording(DATA / "scylla-5.2-histories.json.gz")
GENERATIONS = read_recording(DATA / "scylla-5.2-generations.json.gz")
UDT = UserType("any", "u", (("x", Native("int")), ("y", Native("text"))))
VALUES = ("a", "b", "l", "s", "m", "un", "fr", "st", "ss")
WITHOUT_IMAGES = ("a", "b", "fr", "st")
KEY = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no")
TABLES = {
    "t": "CREATE TABLE {ks}.t (pk int, ck int, v text, PRIMARY KEY (pk, ck)) "
    "WITH cdc = {{'enabled': true, 'ttl': 0}}",
    "c": "CREATE TABLE {ks}.c (a int, b text, v int, PRIMARY KEY ((a, b))) "
    "WITH cdc = {{'enabled': true, 'ttl': 0}}",
}

pytestmark = [pytest.mark.spark, pytest.mark.needs("generations")]


@frozen
class History:
    """A recorded log in the server's table `t`, and its range of write times, in µs."""

    log: Result
    start: int
    end: int

    @property
    def until(self) -> str:
        """The end of a read that includes the last row and no later ones."""
        return format_timestamp(self.end + 1)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(history, id=f"seed{history['seed']}", marks=[pytest.mark.slow] * bool(number))
        for number, history in enumerate(HISTORIES)
    ],
)
def recorded(request: pytest.FixtureRequest) -> Any:
    """Each recorded history in turn."""
    return request.param


@pytest.fixture
def history(scylla: Scylla, keyspace: str, recorded: Any) -> Iterator[History]:
    """The history in table `t`, with its streams as a generation of the recorded time."""
    log = Result.from_recording(recorded["log"])
    times = [micros(time) for time in column(log, "cdc$time")]
    for statement in [*recorded["types"], recorded["table"]]:
        kept = statement.replace("'enabled': true", "'enabled': true, 'ttl': 0")
        scylla.session.execute(kept.replace("{ks}", keyspace))
    load_rows(scylla.session, TableName(keyspace, "t").log, log)
    began = min(times) // 1_000 - 1_000
    with published(scylla.session, began, ring(column(log, "cdc$stream_id"))):
        yield History(log, began * 1_000, max(times))


@pytest.mark.nightly
@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_batch_equals_recording(
    load: Callable[..., DataFrame], history: History, partitions: int
) -> None:
    """A batch returns each recorded row once, with equal cells."""
    frame = load(maxPartitions=str(partitions))
    assert frame.rdd.getNumPartitions() == partitions
    rows = frame.collect()
    assert_recorded(rows, history.log)
    assert_in_stream_order(rows)


@pytest.mark.slow
def test_stream_equals_recording(
    spark: SparkSession, load: Callable[..., DataFrame], history: History, tmp_path: Path
) -> None:
    """Many micro-batches write each recorded row to Parquet once, with equal cells."""
    frame = load(
        stream=True,
        endingTimestamp=history.until,
        maxWindowPerTrigger=f"{(history.end - history.start) // 12_000}ms",
        maxPartitions="2",
    )
    query = run_to_parquet(frame, tmp_path)
    assert sum(1 for progress in query if progress.numInputRows) >= 6
    for progress in query if TELLS_START else ():
        # The progress shows the lag: the position and the latest offset.
        (source,) = progress.sources
        ends, latest = map(json.loads, (source.endOffset, source.latestOffset))
        assert ends["position"] <= latest["position"] == history.end + 1
    assert_recorded(spark.read.parquet(str(tmp_path / "rows")).collect(), history.log)


@pytest.mark.slow
def test_changes_folded_are_the_recorded_table(
    load: Callable[..., DataFrame], history: History, recorded: Any
) -> None:
    """Changes folded by key equal the recorded base table, with and without images."""
    kept = ("pk", "ck", *(WITHOUT_IMAGES if recorded["seed"] == 1 else VALUES))
    asked = {"format": "changes", "includeDelta": "true", "rangeDeletes": "emit"}
    asked["maxPartitions"] = "2"
    frame = load(**asked, columns=",".join(kept), endingTimestamp=history.until)
    found = [row.asDict(recursive=True) for row in fold(frame).collect()]
    base = [
        {name: row[name] for name in kept}
        for row in decoded(Result.from_recording(recorded["base"]), UDT)
    ]
    if recorded["seed"] == 1:  # without images, rows with only unread collections are unknown
        base = [row for row in base if (row["a"], row["b"], row["fr"]) != (None, None, None)]
        found = [row for row in found if (row["a"], row["b"], row["fr"]) != (None, None, None)]
    assert in_key_order(found) == in_key_order(base)
    assert len(base) > 20


@pytest.mark.nightly
def test_envelopes_of_a_recording(
    load: Callable[..., DataFrame], history: History, recorded: Any
) -> None:
    """Each change of a recording becomes an envelope that conforms to the package's schema."""
    if recorded["seed"] == 1:
        pytest.skip("the log has no postimages")
    asked = {"format": "envelope", "rangeDeletes": "skip", "endingTimestamp": history.until}
    frame = load(**asked, columns=",".join(VALUES))
    documents = frame.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) AS json")
    check = validator("pk", "ck", *VALUES)
    found = [json.loads(row["json"]) for row in documents.collect()]
    for document in found:
        check.validate(document)
    assert {document["op"] for document in found} == {"c", "u", "d"}
    assert len(found) > 1_000


@pytest.mark.parametrize(
    ("shape", "asked", "keywords"),
    [
        ("log", {}, {}),
        (
            "changes",
            {"includeDelta": "true", "rangeDeletes": "emit"},
            {"include_delta": True, "range_deletes": "emit"},
        ),
        ("envelope", {"rangeDeletes": "skip"}, {"range_deletes": "skip"}),
    ],
)
def test_python_has_the_same_table(
    scylla: Scylla,
    load: Callable[..., DataFrame],
    history: History,
    recorded: Any,
    keyspace: str,
    shape: Any,
    asked: dict[str, str],
    keywords: dict[str, Any],
) -> None:
    """`CdcReader` returns the rows of the DataFrame as Arrow, with the same columns."""
    if recorded["seed"] == 1 and shape == "envelope":
        pytest.skip("the log has no postimages")
    kept = WITHOUT_IMAGES if recorded["seed"] == 1 else VALUES
    frame = load(format=shape, columns=",".join(kept), endingTimestamp=history.until, **asked)
    with CdcReader(scylla.contact_point, f"{keyspace}.t") as reader:
        end = history.end + 1
        given = ChangeFormat(shape, columns=kept, **keywords)
        table = reader.change_batches(end=end, format=given).read_all()
    in_spark = frame.toArrow()
    assert table.column_names == in_spark.column_names
    assert table.num_rows > 1_000
    assert unordered(table) == unordered(in_spark)


def unordered(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows in a fixed order, without the time of the read."""
    rows = table.drop_columns([name for name in table.column_names if name.startswith("ts_")])
    return sorted(rows.to_pylist(), key=repr)


def test_bounds_are_half_open(load: Callable[..., DataFrame], history: History) -> None:
    """The start is inclusive and the end exclusive, to the microsecond."""
    times = sorted(micros(time) for time in column(history.log, "cdc$time"))
    start, end = times[len(times) // 3], times[2 * len(times) // 3]
    frame = load(startingTimestamp=format_timestamp(start), endingTimestamp=format_timestamp(end))
    assert frame.count() == sum(1 for time in times if start <= time < end)


@pytest.fixture
def three_generations(scylla: Scylla, keyspace: str) -> Iterator[None]:
    """The recorded cluster's two tables and three generations, as the cluster published them."""
    for table, statement in TABLES.items():
        scylla.session.execute(statement.format(ks=keyspace))
        log = Result.from_recording(GENERATIONS[f"log_{table}"])
        load_rows(scylla.session, TableName(keyspace, table).log, log)
    described = Result.from_recording(GENERATIONS["phases"][-1]["streams"])
    with ExitStack() as stack:
        for start, groups in generations(described).items():
            stack.enter_context(published(scylla.session, start, groups))
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("three_generations")
@pytest.mark.parametrize(("table", "count", "key"), [("t", 450, ["pk"]), ("c", 60, ["a", "b"])])
@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.nightly), 4])
def test_three_generations(
    load: Callable[..., DataFrame], table: str, count: int, key: list[str], partitions: int
) -> None:
    """Each row of the three generations is read once, in the order of its stream."""
    rows = load(table=table, maxPartitions=str(partitions)).collect()
    assert len(rows) == count
    assert_recorded(rows, Result.from_recording(GENERATIONS[f"log_{table}"]))
    assert_in_stream_order(rows)
    if partitions == 1:
        assert_in_order_by(rows, key)


@pytest.mark.slow
@pytest.mark.usefixtures("three_generations")
def test_three_generations_streamed(
    spark: SparkSession, load: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """Micro-batches that span two generations lose and repeat no row."""
    log = Result.from_recording(GENERATIONS["log_t"])
    times = [micros(time) for time in column(log, "cdc$time")]
    frame = load(
        stream=True,
        startingTimestamp=format_timestamp(min(times)),
        endingTimestamp=format_timestamp(max(times) + 1),
        maxWindowPerTrigger="5s",
        maxPartitions="2",
    )
    run_to_parquet(frame, tmp_path)
    assert_recorded(spark.read.parquet(str(tmp_path / "rows")).collect(), log)


def test_streams_come_from_the_generation_tables(
    scylla: Scylla, keyspace: str, load: Callable[..., DataFrame]
) -> None:
    """Rows are read only from streams of known generations, because the log is never scanned."""
    scylla.session.execute(TABLES["t"].format(ks=keyspace))
    log = Result.from_recording(GENERATIONS["log_t"])
    load_rows(scylla.session, TableName(keyspace, "t").log, log)
    assert load().count() == 0


def run_to_parquet(frame: DataFrame, folder: Path) -> list[StreamingQueryProgress]:
    """Write all available rows to Parquet, and return the progress of each micro-batch."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "rows"))
    return read_available(writer.option("checkpointLocation", str(folder / "checkpoint")))


def ring(streams: Iterable[bytes]) -> list[StreamGroup]:
    """Return a ring with `streams`: as in the recording, it has 16 vnodes with two streams each."""
    known = {StreamId(stream) for stream in streams}
    groups = []
    for vnode in range(16):
        own = [stream for stream in known if stream.index == vnode]
        spare = [StreamId.from_parts(vnode, random, vnode) for random in range(2 - len(own))]
        groups.append(StreamGroup(vnode, (*own, *spare)))
    return groups


def generations(described: Result) -> dict[int, list[StreamGroup]]:
    """Return the stream groups of each generation, by its start in ms.

    `described` contains the rows of the description table.
    """
    found = defaultdict(list)
    for row in decoded(described):
        start = round(row["time"].timestamp() * 1_000)
        found[start].append(StreamGroup(row["range_end"], tuple(map(StreamId, row["streams"]))))
    return found


def column(result: Result, name: str) -> list[bytes]:
    """Return the cells of a column that is never null."""
    return [cell for row in result.rows if (cell := row[result.column(name)]) is not None]


def assert_recorded(rows: Sequence[Row], log: Result) -> None:
    """Check that columns and rows equal the recorded ones, and that each row occurs once."""
    assert list(rows[0].__fields__) == [*(name for name, _ in log.columns), "_commit_timestamp"]
    found = [row.asDict(recursive=True) for row in rows]
    for row in found:
        moment = row.pop("_commit_timestamp").astimezone(UTC)
        assert datetime_micros(moment) == micros(uuid.UUID(row["cdc$time"]).bytes)
    assert by_key(found, log) == by_key(decoded(log, UDT), log)
    assert len(found) == len(log.rows)


def by_key(rows: Iterable[Mapping[str, Any]], log: Result) -> dict[Any, dict[str, Any]]:
    """Return the rows by the log's primary key, in a form common to both decoders."""
    sets = {name for name, text in log.columns if text.startswith("set<")}
    plains = [{name: plain(cell) for name, cell in row.items()} for row in rows]
    for row in plains:
        row.update({name: sorted(row[name]) for name in sets if row[name] is not None})
    return {tuple(row[name] for name in KEY): row for row in plains}


def in_key_order(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows sorted by key, in a form common to both decoders."""
    plains = [{name: plain(cell) for name, cell in row.items()} for row in rows]
    return sorted(plains, key=lambda row: repr((row["pk"], row["ck"])))


def assert_in_stream_order(rows: Iterable[Row]) -> None:
    """Check that the rows of each stream are in the server's order."""
    streams = defaultdict(list)
    for row in rows:
        place = order_key(uuid.UUID(row["cdc$time"]).bytes), row["cdc$batch_seq_no"]
        streams[bytes(row["cdc$stream_id"])].append(place)
    assert all(places == sorted(places) for places in streams.values())


def assert_in_order_by(rows: Iterable[Row], key: Sequence[str]) -> None:
    """Check that the changes of each base row are in order of write time, across generations."""
    changes = defaultdict(list)
    for row in rows:
        changes[tuple(row[name] for name in key)].append(row["_commit_timestamp"])
    assert all(times == sorted(times) for times in changes.values())


def plain(value: Any) -> Any:
    """Return the value in a form common to both decoders."""
    match value:
        case uuid.UUID():
            return str(value)
        case bytearray():
            return bytes(value)
        case OrderedMapSerializedKey() | dict():
            return {plain(key): plain(item) for key, item in value.items()}
        case SortedSet() | list():
            return [plain(item) for item in value]
        case tuple():
            return value._asdict()  # type: ignore[attr-defined] # a UDT, as the driver has it
    return value
