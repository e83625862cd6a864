"""Copies made by `mirror` equal the table, through crashes, restarts and new columns."""

from __future__ import annotations

import gc
import json
import os
import random
import re
import shutil
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from cdc_reader._time import SystemClock
from cdc_reader.errors import ConfigurationError, MirrorError
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session
from pyspark_scylla_cdc import Mirror, mirror
from pyspark_scylla_cdc.mirroring import mirror as mirroring
from pyspark_scylla_cdc.mirroring import runs
from pyspark_scylla_cdc.spark_versions import TELLS_START
from pyspark_scylla_cdc.tables.layout import IS_CURRENT, Layout
from pyspark_scylla_cdc.tables.sink import MicroBatch, Sink
from tests.connectors.pyspark_scylla_cdc.support.copied_rows import (
    Key,
    Row,
    await_rows,
    check_copy,
    made_by_updates,
    told,
    valid_at,
)
from tests.connectors.pyspark_scylla_cdc.support.lakehouse import CATALOG
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import (
    IMAGES,
    TABLE,
    rows_of,
    statement,
    table_of,
)

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from pyspark.sql import DataFrame, SparkSession

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Start = Callable[..., Mirror]
HISTORIES = int(os.environ.get("MIRROR_HISTORIES", "1"))
CRASHES = int(os.environ.get("MIRROR_CRASHES", "2"))
SECOND = 1_000_000
DAY = 86_400 * SECOND
ROUND = 15
"""The number of statements between two crashes."""
PAGE = Path(__file__).parents[4] / "docs/howto/keep-a-table-current.md"
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Crash(Exception):
    """The error that simulates a crash before a merge, or between the merge and Spark's commit."""


class Crashing:
    """A sink that crashes once, before or after a commit."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.target = sink.target
        self.crash: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def append(self, batch: MicroBatch, layout: Layout, rows: DataFrame) -> int | None:
        return self._write(lambda: self._sink.append(batch, layout, rows))

    def commit(
        self,
        batch: MicroBatch,
        layout: Layout,
        updates: DataFrame | pa.Table,
        spark: SparkSession,
    ) -> int | None:
        return self._write(lambda: self._sink.commit(batch, layout, updates, spark))

    def _write(self, write: Callable[[], int | None]) -> int | None:
        if self.crash == "before":
            self._crash()
        first = write()  # which may find that it needs rows, and is then called again
        if self.crash == "after":
            self._crash()
        return first

    def _crash(self) -> None:
        self.crash = None
        raise Crash


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Sets the point at which copies started later will crash. None means no crash."""
    made = mirroring._sink
    planned: list[str | None] = [None]

    def sink(*values: Any) -> Crashing:
        crashing = Crashing(made(*values))
        crashing.crash = planned[0]
        return crashing

    def plan(crash: str | None) -> None:
        planned[0] = crash

    monkeypatch.setattr(mirroring, "_sink", sink)
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("history", [False, True], ids=["rows", "versions"])
@pytest.mark.parametrize("_number", range(HISTORIES))
@pytest.mark.timeout(300 + 120 * CRASHES)
def test_a_copy_is_the_table_through_crashes(
    scylla: Scylla,
    keyspace: str,
    execute: Execute,
    start: Start,
    crashes: Callable[[str | None], None],
    place: dict[str, str],
    _number: int,
    history: bool,
) -> None:
    """After crashes, a copy equals the table, including the rows that are not in the log.

    Each micro-batch is merged once.
    """
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    table = f"{keyspace}.t"
    done = statements(draw, 2 * ROUND)
    execute(TABLE.partition(" AND cdc")[0], *done)
    execute(f"ALTER TABLE {{t}} WITH cdc = {IMAGES['full images']}")
    if history:  # a history is exact only from the end of the snapshot on
        assert start(**place, history=history).awaitTermination()
        done += statements(draw, ROUND)
        execute(*done[-ROUND:])
    seen: list[tuple[int, list[Row], set[Key]]] = []
    for number in range(CRASHES):
        crashes("after" if number % 2 == 0 else "before")
        with pytest.raises(MirrorError, match="Crash"):
            start(**place, history=history).awaitTermination()
        for text in statements(draw, ROUND):
            execute(text)
            done.append(text)
            seen.append((SystemClock().now(), table_of(scylla, table), made_by_updates(done)))
    crashes(None)
    copy = start(**place, history=history)
    assert copy.awaitTermination()
    if not history:
        check_copy(rows_of(copy.read()), table_of(scylla, table), made_by_updates(done))
        return
    found = told(copy.read())
    for time, rows, by_updates in seen:
        check_copy(valid_at(time, found), rows, by_updates)


def statements(draw: random.Random, count: int) -> list[str]:
    """Draw statements without explicit timestamps."""
    found: list[str] = []
    while len(found) < count:
        text = statement(draw, SystemClock().now())
        if "TIMESTAMP" not in text:
            found.append(text)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "limit", [5, pytest.param(None, marks=pytest.mark.nightly)], ids=["limit", "default"]
)
def test_available_now_reads_everything(
    execute: Execute,
    start: Start,
    place: dict[str, str],
    crashes: Callable[[str | None], None],
    monkeypatch: pytest.MonkeyPatch,
    limit: int | None,
) -> None:
    """With ``availableNow``, a copy gets all rows on each version of Spark, also after a crash.

    On each version, a snapshot is read in micro-batches of limited size.
    """
    monkeypatch.setattr(runs, "UNLIMITED", 5)
    source = {} if limit is None else {"maxRowsPerTrigger": str(limit)}
    keys = range(12)
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true}",
        *(f"INSERT INTO {{t}} (pk) VALUES ({pk})" for pk in keys),
    )
    crashes("before")
    with pytest.raises(MirrorError, match="Crash"):
        start(source, **place).awaitTermination()
    crashes(None)
    copy = start(source, **place)
    assert copy.awaitTermination()
    assert {row["pk"] for row in rows_of(copy.read())} == set(keys)
    batches = micro_batches(place)
    assert batches >= 3 or (TELLS_START and limit is None)
    execute(*(f"INSERT INTO {{t}} (pk) VALUES ({pk + 12})" for pk in keys))
    copy = start(source, **place)
    assert copy.awaitTermination()
    assert len(rows_of(copy.read())) == 24
    assert micro_batches(place) > batches


def micro_batches(place: dict[str, str]) -> int:
    """Return the number of micro-batches that a copy's checkpoint records."""
    return sum(each.name.isdigit() for each in (Path(place["checkpoint"]) / "commits").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_a_copy_that_is_stopped_is_not_started_again(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """After `stop`, the queries have ended, even if rows are unread. A later call reads them."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true}",
        *(f"INSERT INTO {{t}} (pk) VALUES ({pk})" for pk in range(9)),
    )
    source = {"maxRowsPerTrigger": "3"}
    copy = start(source, **place)
    while rows_of(copy.read()) == []:
        assert not copy.awaitTermination(timeout=0.1)
    copy.stop()
    assert copy.awaitTermination()
    assert not any(query.isActive for query in copy.queries)
    found = len(rows_of(copy.read()))
    assert 0 < found < 9 or TELLS_START
    copy = start(source, **place)
    assert copy.awaitTermination()
    assert len(rows_of(copy.read())) == 9


@pytest.mark.slow
def test_new_columns_come_along(execute: Execute, start: Start, place: dict[str, str]) -> None:
    """A copy gets each column that is added to the table, between runs or during a run.

    A dropped column stays in the copy with its last values.
    """
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int, w int) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk, v, w) VALUES (1, 1, 1)",
        "INSERT INTO {t} (pk, v, w) VALUES (4, 1, 1)",
    )
    assert start(**place).awaitTermination()
    execute(
        'ALTER TABLE {t} ADD "Odd, na.me" frozen<map<text, frozen<set<int>>>>',
        "INSERT INTO {t} (pk, \"Odd, na.me\") VALUES (2, {'k': {1}})",
    )
    copy = start(**place, trigger={"processingTime": "0 seconds"})
    await_rows(copy, 3)
    execute(
        "ALTER TABLE {t} ADD x text",
        "ALTER TABLE {t} DROP w",
        "UPDATE {t} SET v = 2 WHERE pk = 4",
        "INSERT INTO {t} (pk, x) VALUES (3, 'x')",
    )
    await_rows(copy, 4)
    copy.stop()
    found = {row["pk"]: row for row in rows_of(copy.read())}
    assert (found[1]["w"], found[2]["Odd, na.me"], found[3]["x"]) == (1, {"k": [1]}, "x")
    assert found[3] == {"pk": 3, "v": None, "w": None, "Odd, na.me": None, "x": "x"}
    assert found[4] == {"pk": 4, "v": 2, "w": 1, "Odd, na.me": None, "x": None}


@pytest.mark.slow
def test_several_tables_in_one_call(
    scylla: Scylla,
    spark: SparkSession,
    keyspace: str,
    execute: Execute,
    start: Start,
    place: dict[str, str],
    tmp_path: Path,
) -> None:
    """Each table has its own copy and checkpoint. A checkpoint without its copy is rejected."""
    names = [f"{keyspace}.t", f"{keyspace}.other"]
    for number, name in enumerate(names):
        scylla.session.execute(
            f"CREATE TABLE {name} (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
        )
        scylla.session.execute(f"INSERT INTO {name} (pk) VALUES ({number})")
    is_iceberg = place["format"] == "iceberg"
    place["target"] = CATALOG if is_iceberg else place["target"]
    copy = start(**place, tables=names)
    assert copy.awaitTermination()
    assert [rows_of(copy.read(number)) for number in (0, 1)] == [[{"pk": 0}], [{"pk": 1}]]
    assert len(copy.queries) == len(list((tmp_path / "positions" / keyspace).iterdir())) == 2
    execute("INSERT INTO {t} (pk) VALUES (7)")
    if is_iceberg:
        place["target"] = f"{CATALOG}.{keyspace}.t"
        spark.sql(f"DROP TABLE {place['target']}")
    else:
        place["target"] += f"/{keyspace}/t"
        shutil.rmtree(place["target"])
    place["checkpoint"] += f"/{keyspace}/t"
    with pytest.raises(MirrorError, match=r"micro-batch \d does not follow none"):
        start(**place).awaitTermination()


@pytest.mark.slow
def test_a_copy_without_its_checkpoint_is_rejected(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """A new checkpoint cannot continue a copy. The first micro-batch writes nothing."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk) VALUES (1)",
    )
    assert start(**place).awaitTermination()
    shutil.rmtree(place["checkpoint"])
    execute("INSERT INTO {t} (pk) VALUES (2)")
    copy = start(**place)
    with pytest.raises(MirrorError, match=r"was written with another checkpoint: .*"):
        copy.awaitTermination()
    assert rows_of(copy.read()) == [{"pk": 1}]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_a_query_that_has_ended_is_freed(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """A program can run copies any number of times, because nothing refers to an ended query."""
    execute("CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    copy = start(**place)
    assert copy.awaitTermination()
    [query] = map(weakref.ref, copy.queries)
    assert query() is not None
    del copy
    gc.collect()
    assert query() is None


@pytest.mark.nightly
@pytest.mark.parametrize(
    "runs", [pytest.param(1, id="one batch older"), pytest.param(2, id="two batches older")]
)
def test_an_older_checkpoint_is_rejected(
    execute: Execute, start: Start, place: dict[str, str], tmp_path: Path, runs: int
) -> None:
    """A checkpoint that was restored from a backup is rejected in every run.

    With such a checkpoint, Spark plans other micro-batches under old numbers. The copy stays
    unchanged.
    """
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk) VALUES (0)",
    )
    copy = start(**place)
    assert copy.awaitTermination()
    backup = shutil.copytree(place["checkpoint"], tmp_path / "backup")
    for pk in range(runs):
        execute(f"INSERT INTO {{t}} (pk) VALUES ({pk + 1})")
        assert start(**place).awaitTermination()
    shutil.rmtree(place["checkpoint"])
    shutil.copytree(backup, place["checkpoint"])
    for pk in (8, 9):
        execute(f"INSERT INTO {{t}} (pk) VALUES ({pk})")
        with pytest.raises(MirrorError, match=r"micro-batch \d of an older checkpoint"):
            start(**place).awaitTermination()
    assert rows_of(copy.read()) == [{"pk": pk} for pk in range(runs + 1)]


@pytest.mark.nightly
def test_a_copy_of_another_table_keeps_its_columns(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """A rejected micro-batch adds no columns to the target."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk) VALUES (1)",
    )
    copy = start(**place)
    assert copy.awaitTermination()
    shutil.rmtree(place["checkpoint"])
    execute("ALTER TABLE {t} ADD other int", "INSERT INTO {t} (pk, other) VALUES (2, 2)")
    with pytest.raises(MirrorError, match="was written with another checkpoint"):
        start(**place).awaitTermination()
    assert rows_of(copy.read()) == [{"pk": 1}]


@pytest.mark.nightly
def test_micro_batches_without_rows_count(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """Each empty micro-batch is recorded in the copy, so that the next one follows it."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk, v) VALUES (1, 1)",
    )
    assert start(**place).awaitTermination()
    for _ in range(2):
        execute("DELETE FROM {t} WHERE pk = 2")
        assert start(**place).awaitTermination()
    execute("INSERT INTO {t} (pk, v) VALUES (3, 3)")
    copy = start(**place)
    assert copy.awaitTermination()
    assert rows_of(copy.read()) == [{"pk": 1, "v": 1}, {"pk": 3, "v": 3}]


@pytest.mark.slow
def test_a_copy_keeps_its_kind(execute: Execute, start: Start, place: dict[str, str]) -> None:
    """A copy with history cannot continue without history, and rejects a column `valid_to`."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk) VALUES (1)",
    )
    assert start(**place, history=True).awaitTermination()
    with pytest.raises(ConfigurationError, match="created with history=True: give another"):
        start(**place)
    execute("ALTER TABLE {t} ADD valid_to int")
    with pytest.raises(ConfigurationError, match="a column valid_to, a name that the history"):
        start(**place, history=True)


class AdvancedClock(SystemClock):
    """The system's clock, `ahead` by a number of µs."""

    ahead = 0

    def now(self) -> int:
        return super().now() + self.ahead


@pytest.fixture
def expiring(keyspace: str) -> Iterator[tuple[EmbeddedScylla, AdvancedClock, Session]]:
    """A separate cluster whose clock can be advanced, and a session for the test's keyspace."""
    clock = AdvancedClock()
    with EmbeddedScylla(clock=clock, vnodes=4, ring_delay_ms=0) as cluster:
        session = open_session(cluster.host, cluster.port)
        session.use_client_timestamp = False
        session.execute(
            f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', "
            "'datacenter1': 1} AND tablets = {'enabled': false}"
        )
        session.set_keyspace(keyspace)
        try:
            yield cluster, clock, session
        finally:
            session.cluster.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(
    "history", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["rows", "versions"]
)
@pytest.mark.timeout(300)
def test_changes_that_expire_between_runs(
    expiring: tuple[EmbeddedScylla, AdvancedClock, Session],
    start: Start,
    place: dict[str, str],
    crashes: Callable[[str | None], None],
    history: bool,
) -> None:
    """After a loss, runs with `resnapshot` make the copy equal to the table again.

    This holds even if the first micro-batch of the new snapshot crashes, and if the next run has
    another `onDataLoss`, which cannot continue.
    """
    cluster, clock, session = expiring
    again = {"hosts": cluster.contact_point, "onDataLoss": "resnapshot", "maxRowsPerTrigger": "2"}
    other = {**again, "onDataLoss": "continue"}
    session.execute("CREATE TABLE t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    for pk in range(5):
        session.execute(f"INSERT INTO t (pk, v) VALUES ({pk}, 0)")
    clock.ahead += 60 * SECOND
    assert start(again, **place, history=history).awaitTermination()
    session.execute("DELETE FROM t WHERE pk = 1")
    session.execute("UPDATE t SET v = 2 WHERE pk = 2")
    clock.ahead += 2 * DAY
    session.execute("INSERT INTO t (pk, v) VALUES (7, 7)")
    clock.ahead += 60 * SECOND
    for crash in ("before", "after"):
        crashes(crash)
        with pytest.raises(MirrorError, match="Crash"):
            start(again, **place, history=history).awaitTermination()
        if crash == "before":
            assert "lost" in last_offset(place)
            with pytest.raises(MirrorError, match="give 'resnapshot' until the snap"):
                start(other, **place, history=history).awaitTermination()
    crashes(None)
    copy = start(again, **place, history=history)
    assert copy.awaitTermination()
    rows = [row for row in rows_of(copy.read()) if row.get(IS_CURRENT, True)]
    assert len(rows) == 5
    found = {row["pk"]: row["v"] for row in rows}
    assert found == dict(session.execute("SELECT pk, v FROM t")) == {0: 0, 2: 2, 3: 0, 4: 0, 7: 7}


def last_offset(place: dict[str, str]) -> dict[str, Any]:
    """Return the newest offset of a copy's checkpoint."""
    offsets = Path(place["checkpoint"]) / "offsets"
    last = max(int(each.name) for each in offsets.iterdir() if each.name.isdigit())
    found: dict[str, Any] = json.loads((offsets / str(last)).read_text().splitlines()[-1])
    return found


@pytest.mark.parametrize("place", ["iceberg"], indirect=True)
def test_the_block_of_the_page(
    spark: SparkSession, options: dict[str, str], execute: Execute, place: dict[str, str]
) -> None:
    """The Iceberg example of the how-to page maintains a copy of the table."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk) VALUES (1)",
    )
    (code,) = [block for block in BLOCK.findall(PAGE.read_text()) if '"iceberg"' in block]
    code = code.replace("scylla.example.com:9042", options["hosts"])
    code = code.replace('"shop"', f'"{options["keyspace"]}"').replace('"orders"', '"t"')
    code = code.replace("lake.shop.orders", place["target"])
    code = code.replace("/data/lake.checkpoint", place["checkpoint"])
    defined: dict[str, Any] = {"spark": spark, "mirror": mirror}
    exec(code, defined)
    assert rows_of(defined["copy"].read()) == [{"pk": 1}]


@pytest.mark.parametrize("history", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_a_plain_copy_in_parquet(
    execute: Execute,
    spark: SparkSession,
    start: Start,
    place: dict[str, str],
    tmp_path: Path,
    history: bool,
) -> None:
    """`read` returns the copy as it is, with its versions, and Spark writes it in any format."""
    execute("CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    execute("INSERT INTO {t} (pk, v) VALUES (1, 0)")
    assert start(**place, history=history).awaitTermination()
    execute("INSERT INTO {t} (pk, v) VALUES (1, 1)")
    copy = start(**place, history=history)
    assert copy.awaitTermination()
    copy.read().write.parquet(str(tmp_path / "plain"))
    found = rows_of(spark.read.parquet(str(tmp_path / "plain")))
    assert found == rows_of(copy.read())
    assert [row["v"] for row in found if row.get("is_current", True)] == [1]
    assert len(found) == 1 + history


def test_a_delta_table_without_deltalake(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, and without Delta Lake's extension, the error says what to install."""
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'scylla-cdc\[lake\]'"):
        start()


def test_wrong_values_are_told(start: Start) -> None:
    """Invalid arguments raise an error before any row is read."""
    for values, message in (
        ({"format": "csv"}, "format is 'csv': give one of delta, iceberg"),
        ({"format": "parquet"}, "give delta, whose files are Parquet, or write read"),
        ({"target": ""}, "target is '': give the copy's path"),
        ({"format": "iceberg"}, "checkpoint is None: give a directory"),
        ({"format": "iceberg", "checkpoint": "/c"}, "give the name of a table in an Iceberg"),
        ({"tables": ["t"]}, "table"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            start(**values)
