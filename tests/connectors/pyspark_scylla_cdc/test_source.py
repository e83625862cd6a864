"""The source in real Spark: types, pitfalls of Spark's planning, and secrets."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cassandra.util import Date, Duration, Time
from click.testing import CliRunner
from pyspark.errors import AnalysisException
from pyspark.sql.types import ArrayType, StringType, StructType

from cdc_reader._time import SystemClock
from cdc_reader.cli.command import main
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.spark_versions import TELLS_START
from tests.connectors.pyspark_scylla_cdc.support.readers import batch_reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

ID = uuid.UUID("c72c7c3e-2fda-11eb-8080-808080808080")
VALUES: dict[str, tuple[str, Any, Any]] = {
    "a_ascii": ("ascii", "abc", "abc"),
    "a_bigint": ("bigint", -(2**63), -(2**63)),
    "a_blob": ("blob", b"\x00\xff", b"\x00\xff"),
    "a_boolean": ("boolean", True, True),
    "a_date": ("date", Date("2026-11-21"), dt.date(2026, 11, 21)),
    "a_decimal": ("decimal", Decimal("-12.340"), "-12.340"),
    "a_double": ("double", 0.1, 0.1),
    "a_duration": ("duration", Duration(-1, -2, -3), (-1, -2, -3)),
    "a_float": ("float", 0.5, 0.5),
    "a_inet": ("inet", ip_address("::1"), "::1"),
    "an_int": ("int", -(2**31), -(2**31)),
    "a_list": ("frozen<list<text>>", ["b", "a", "b"], ["b", "a", "b"]),
    "a_map": ("frozen<map<int, frozen<set<uuid>>>>", {1: {ID}}, {1: [str(ID)]}),
    "a_set": ("set<int>", {3, 1, 2}, [1, 2, 3]),
    "a_smallint": ("smallint", -(2**15), -(2**15)),
    "a_text": ("text", "žluťoučký 🐎", "žluťoučký 🐎"),
    "a_time": ("time", Time(86_399_999_999_999), 86_399_999_999_999),
    "a_timestamp": (
        "timestamp",
        dt.datetime(2026, 11, 21, 5, 30, 0, 123_000, dt.UTC),
        dt.datetime(2026, 11, 21, 5, 30, 0, 123_000, dt.UTC),
    ),
    "a_timeuuid": ("timeuuid", ID, str(ID)),
    "a_tinyint": ("tinyint", -128, -128),
    "a_tuple": ("tuple<int, text>", (1, None), (1, None)),
    "a_udt": ("address", ("Elm Street", 7), ("Elm Street", 7)),
    "a_uuid": ("uuid", ID, str(ID)),
    "a_varint": ("varint", 10**50, str(10**50)),
}
LOG_KEY = ["cdc$stream_id", "cdc$time", "cdc$batch_seq_no"]


@pytest.fixture
def all_types(scylla: Scylla, keyspace: str) -> None:
    """A table with a column of each type: one row has all values, the other has none."""
    scylla.session.execute(f"CREATE TYPE {keyspace}.address (street text, number int)")
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in VALUES.items())
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, {columns}) WITH cdc = {{'enabled': true}}"
    )
    marks = ", ".join("?" for _ in VALUES)
    insert = scylla.session.prepare(
        f"INSERT INTO {keyspace}.t (pk, {', '.join(VALUES)}) VALUES (?, {marks})"
    )
    scylla.session.execute(insert, (1, *(value for _, value, _ in VALUES.values())))
    scylla.session.execute(f"INSERT INTO {keyspace}.t (pk) VALUES (2)")


@pytest.fixture
def numbers(scylla: Scylla, keyspace: str) -> None:
    """A table with a hundred rows in its log."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}"
    )
    for number in range(100):
        scylla.session.execute(f"INSERT INTO {keyspace}.t (pk, v) VALUES ({number}, {number})")


@pytest.mark.usefixtures("all_types")
def test_every_type(load: Callable[..., DataFrame]) -> None:
    """Each CQL type is read as it was written. Unset columns are null."""
    rows = {row["pk"]: row for row in load().collect()}
    for name, (_, _, expected) in VALUES.items():
        found = rows[1][name]
        if isinstance(expected, dt.datetime):
            found = found.astimezone(dt.UTC)
        assert found == expected, name
        assert rows[2][name] is None, name


@pytest.mark.usefixtures("numbers")
def test_load_takes_keyspace_and_table(
    spark: SparkSession, keyspace: str, options: dict[str, str], tmp_path: Path
) -> None:
    """Keyspace and table may be given as one path, in a batch, a stream and SQL."""
    given = {name: value for name, value in options.items() if name not in ("keyspace", "table")}
    batch = spark.read.format("scylla_cdc").options(**given).load(f"{keyspace}.t", columns="v")
    assert batch.where("v < 10 AND `cdc$operation` = 2").count() == 10
    stream = spark.readStream.format("scylla_cdc").options(**given, confidenceWindow="0s")
    writer = stream.load(f'"{keyspace}"."t"').writeStream.format("noop")
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "c"))
    running = query.start()
    running.awaitTermination()
    assert sum(progress["numInputRows"] for progress in running.recentProgress) == 100
    listed = ", ".join(f"{name} '{value}'" for name, value in given.items())
    spark.sql(
        f"CREATE TEMPORARY VIEW by_path USING scylla_cdc OPTIONS (path '{keyspace}.t', {listed})"
    )
    assert spark.table("by_path").count() == 100


@pytest.mark.usefixtures("all_types")
def test_columns_are_the_log_tables(
    scylla: Scylla, keyspace: str, load: Callable[..., DataFrame]
) -> None:
    """A DataFrame has the columns of ``SELECT *`` on the log table, then `_commit_timestamp`."""
    log = scylla.session.execute(f"SELECT * FROM {keyspace}.t_scylla_cdc_log LIMIT 1")
    frame = load()
    assert frame.columns == [*log.column_names, "_commit_timestamp"]
    assert frame.columns[:3] == LOG_KEY


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
def test_one_dataframe_in_many_queries(load: Callable[..., DataFrame]) -> None:
    """Queries with different filters on one DataFrame do not affect each other."""
    frame = load()
    assert frame.where("pk < 10").count() == 10
    assert frame.where("pk >= 90").count() == 10
    assert frame.count() == 100
    assert frame.where("v = 5").union(frame.where("v = 6")).count() == 2
    assert frame.join(frame.select("cdc$time"), "cdc$time").count() == 100


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
def test_unsettled_rows_are_read_by_a_batch(
    scylla: Scylla, keyspace: str, load: Callable[..., DataFrame]
) -> None:
    """A batch also reads unsettled rows, even if the writer's clock is seconds ahead."""
    ahead = SystemClock().now() + 4_000_000
    scylla.session.execute(
        f"INSERT INTO {keyspace}.t (pk, v) VALUES (1, 1) USING TIMESTAMP {ahead}"
    )
    assert load().count() == 101


@pytest.mark.slow
def test_empty_log(
    spark: SparkSession,
    scylla: Scylla,
    keyspace: str,
    load: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    """An empty log is read as an empty DataFrame, in a batch and in a stream."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
    )
    assert load().collect() == []
    query = (
        load(stream=True)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    query.awaitTermination()
    assert spark.read.schema("pk int").parquet(str(tmp_path / "rows")).count() == 0


@pytest.mark.slow
def test_columns_with_awkward_names(
    scylla: Scylla, keyspace: str, load: Callable[..., DataFrame]
) -> None:
    """Names may contain capitals, quotes and dots, or be reserved words."""
    scylla.session.execute(
        f'CREATE TABLE {keyspace}."Order" ("Key" int PRIMARY KEY, "select" int, "a.b ""c""" int) '
        "WITH cdc = {'enabled': true}"
    )
    scylla.session.execute(
        f'INSERT INTO {keyspace}."Order" ("Key", "select", "a.b ""c""") VALUES (1, 2, 3)'
    )
    (row,) = load(table="Order").collect()
    assert (row["Key"], row["select"], row['a.b "c"']) == (1, 2, 3)


@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_a_base_column_named_like_an_added_one_is_refused(
    scylla: Scylla, keyspace: str, load: Callable[..., DataFrame], *, stream: bool
) -> None:
    """`load()` rejects a base column named `_commit_timestamp`, and states the remedy."""
    scylla.session.execute(
        f'CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, "_commit_timestamp" int) '
        "WITH cdc = {'enabled': true}"
    )
    told = (
        rf"UnsupportedTableError: {keyspace}\.t has a column _commit_timestamp, "
        "but .*: leave it out"
    )
    with pytest.raises(AnalysisException, match=told):
        load(stream=stream)


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
def test_password_stays_secret(
    capsys: pytest.CaptureFixture[str],
    options: dict[str, str],
    load: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    """Neither plans nor checkpoints contain the password."""
    secret = {"username": "reader", "password": "hunter2", **options}
    load(**secret).explain(mode="extended")
    plan = capsys.readouterr().out
    assert "scylla_cdc" in plan
    assert secret["password"] not in plan
    query = (
        load(stream=True, **secret)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(secret["password"].encode() in path.read_bytes() for path in files)


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
def test_the_command_reads_a_checkpoint(
    scylla: Scylla, keyspace: str, load: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """`scylla-cdc status` finds the query's position, under the query's id."""
    writer = load(stream=True).writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    query.awaitTermination()
    status = ["status", "--hosts", scylla.contact_point, "--json", f"{keyspace}.t"]
    arguments = [*status, "--checkpoint", str(tmp_path), "--max-lag", "10m"]
    outcome = CliRunner().invoke(main, arguments)
    assert outcome.exit_code == 0, outcome.output
    [reader] = json.loads(outcome.stdout)["applications"]
    assert reader["application"] == str(query.id)
    assert 0 <= reader["lag_seconds"] < 600
    assert reader["expires_in_seconds"] > 80_000


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
def test_table_altered_since_load(
    scylla: Scylla, keyspace: str, load: Callable[..., DataFrame]
) -> None:
    """A DataFrame keeps its columns. It fails if a column is dropped or, on request, added."""
    keeping, failing, losing = load(), load(schemaMode="fail"), load()
    scylla.session.execute(f"ALTER TABLE {keyspace}.t ADD w int")
    assert keeping.count() == 100
    assert "w" not in keeping.columns
    with pytest.raises(AnalysisException, match=r"columns that the DataFrame lacks .*w.*load it"):
        failing.count()
    assert "w" in load().columns
    scylla.session.execute(f"ALTER TABLE {keyspace}.t DROP v")
    with pytest.raises(AnalysisException, match=r"has a column cdc\$deleted_v"):
        losing.count()


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
def test_a_schema_is_a_projection(spark: SparkSession, options: dict[str, str]) -> None:
    """The given schema selects columns and their order, in SQL too."""
    reader = spark.read.format("scylla_cdc").options(**options)
    frame = reader.schema("v int, _commit_timestamp timestamp, pk int").load()
    assert frame.columns == ["v", "_commit_timestamp", "pk"]
    assert sorted(row["v"] for row in frame.where("pk < 3").collect()) == [0, 1, 2]
    given = ", ".join(f"`{name}` '{text}'" for name, text in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW log USING scylla_cdc OPTIONS ({given})")
    assert spark.sql("SELECT count(DISTINCT pk) FROM log WHERE v >= 90").first() == (10,)


@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize(
    "schema",
    [
        "v int NOT NULL",
        StructType().add("_modified_columns", ArrayType(StringType(), containsNull=False)),
    ],
)
def test_a_schema_must_allow_nulls(
    spark: SparkSession, options: dict[str, str], schema: StructType | str
) -> None:
    """Spark would reject the rows of such a schema without saying why."""
    given = {**options, "format": "changes", "includeDelta": "true"}
    frame = spark.read.format("scylla_cdc").options(**given).schema(schema).load()
    with pytest.raises(AnalysisException, match=r"column \w+ is NOT NULL, or has parts that are"):
        frame.collect()


@pytest.mark.usefixtures("numbers")
def test_tables_that_sql_creates(
    spark: SparkSession, options: dict[str, str], request: pytest.FixtureRequest
) -> None:
    """Spark drops the options of a created table: the error says so, and what works does."""
    given = ", ".join(f"`{name}` = '{text}'" for name, text in options.items())
    request.addfinalizer(lambda: spark.sql("DROP TABLE IF EXISTS created_log"))
    for more in ("", f"OPTIONS ({given})", f"TBLPROPERTIES ({given})"):
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW"):
            spark.sql(f"CREATE TABLE created_log USING scylla_cdc {more}")
    if not TELLS_START:  # Spark 4.0 and 4.1 do not read such a table at all
        return
    spark.sql(f"CREATE TABLE created_log (pk int, v int) USING scylla_cdc OPTIONS ({given})")
    with pytest.raises(AnalysisException, match=r"hosts is None: .* use CREATE TEMPORARY VIEW"):
        spark.table("created_log").collect()
    counted = spark.sql(f"SELECT count(*) FROM created_log WITH ({given})").first()
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW log USING scylla_cdc OPTIONS ({given})")
    assert counted == spark.sql("SELECT count(*) FROM log").first()


@pytest.mark.usefixtures("numbers")
def test_columns_have_metadata(load: Callable[..., DataFrame]) -> None:
    """The metadata of a column contains its CQL type and its role in the key."""
    schema = load(format="changes", includeDelta="true").schema
    assert schema["pk"].metadata == {"cql.type": "int", "cql.kind": "partition_key"}
    assert schema["v"].metadata == {"cql.type": "int", "cql.kind": "regular"}
    assert schema["_change_type"].metadata["cql.insert"] == "statement"


def test_limits_of_micro_batches_in_a_batch(
    options: dict[str, str], execute: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """A batch read names the options that have no effect on it, in one warning."""
    execute("CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    limits = {"maxRowsPerTrigger": "5", "maxBytesPerTrigger": "1m", "lateRows": "deliver"}
    batch_reader(SourceOptions.parse({**options, **limits}))
    [told] = [text for text in caplog.messages if "options_without_effect" in text]
    assert "options='maxRowsPerTrigger, maxBytesPerTrigger, lateRows'" in told
