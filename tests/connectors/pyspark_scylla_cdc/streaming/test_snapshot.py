"""A query that reads a snapshot in micro-batches, and crashes and restarts as in Spark.

`SCYLLA_CDC_SEEDS` sets the number of histories (60 if unset), and `SCYLLA_CDC_SEED` sets the seed
of the first one.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest
from attrs import define, field, frozen
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import format_timestamp
from cdc_reader.cluster.values import murmur3
from cdc_reader.errors import CheckpointError, ConfigurationError, DataLossError
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN
from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc.planning.snapshot import SnapshotPartition
from pyspark_scylla_cdc.spark_versions import TELLS_START, ReadAllAvailable, ReadMaxFiles
from pyspark_scylla_cdc.streaming.snapshot_end import RowsAhead
from pyspark_scylla_cdc.streaming.stream import StreamReader
from tests.connectors.pyspark_scylla_cdc.support.readers import stream_readers

if TYPE_CHECKING:
    from cassandra.cluster import Session

SEEDS = int(os.environ.get("SCYLLA_CDC_SEEDS", "60"))
FIRST = int(os.environ.get("SCYLLA_CDC_SEED", "1"))
SECOND = 1_000_000
LIMIT = ReadMaxFiles(1)

Row = dict[str, Any]
Key = tuple[int, int | None]
Offset = dict[str, Any]

tokens = st.lists(st.integers(MIN_TOKEN + 1, MAX_TOKEN), max_size=40).map(sorted)


@given(tokens, st.integers(1, 50))
def test_a_micro_batch_ends_with_a_whole_partition(found: list[int], limit: int) -> None:
    """A micro-batch contains as many whole partitions as fit, but at least one."""
    start, ends = MIN_TOKEN, []
    while start < MAX_TOKEN:
        ahead = RowsAhead(np.array([t for t in found if t > start], np.int64), is_all=True)
        end = ahead.end(start, limit)
        assert end > start
        here = [t for t in found if start < t <= end]
        assert len(here) <= limit or len(set(here)) == 1
        if end < MAX_TOKEN:
            after = next((t for t in found if t > end), None)
            assert after is None or len(here) + found.count(after) > limit
        ends.append(end)
        start = end
    assert ends[-1] == MAX_TOKEN


@given(st.lists(st.integers(1 - (1 << 62), 0), min_size=1, max_size=40).map(sorted))
def test_rows_that_are_not_counted_are_estimated(found: list[int]) -> None:
    """The estimate assumes that uncounted rows are as dense as the counted rows."""
    ahead = RowsAhead(np.array(found, np.int64), is_all=False)
    start = -(1 << 62)
    double = ahead.end(start, 2 * len(found))
    assert abs(double - start - 2 * (found[-1] - start)) <= 2
    assert ahead.end(start, 10**9 * len(found)) <= MAX_TOKEN


def test_static_columns_count_as_rows(make: Make, session: Session) -> None:
    """The static columns of a partition count as a separate row."""
    create(session, statics=True)
    for pk in range(30):
        session.execute("INSERT INTO ks.t (pk, ck, s, v) VALUES (%s, 1, 2, 3)", (pk,))
    query = Query(lambda: make(maxRowsPerTrigger="10"))
    query.run(available_now=True)
    assert max(len(rows) for rows in query.sink.values()) == 10
    assert sum(len(rows) for rows in query.sink.values()) == 60


@define
class Query:
    """A query as Spark runs it: Spark stores an offset, runs the micro-batch, and commits it.

    The query may crash at any point. The sink keeps what the last attempt at a micro-batch wrote.
    """

    make: Callable[[], StreamReader]
    offsets: list[str] = field(factory=list)
    committed: int = 0
    sink: dict[int, list[Row]] = field(factory=dict)
    planned: dict[int, str] = field(factory=dict)
    reader: StreamReader | None = None
    is_ending: bool = False
    repeated: int | None = None
    """The number of the micro-batch that an earlier run stored, and that this run repeats."""

    def start(self, *, available_now: bool = False) -> StreamReader:
        """Start a run. Like Spark, plan an empty micro-batch at the checkpoint first."""
        self.reader, self.is_ending = self.make(), available_now
        self.repeated = self.committed if len(self.offsets) > self.committed else None
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        if self.committed:
            last = json.loads(self.offsets[self.committed - 1])
            assert self.reader.partitions(last, last) == []
        return self.reader

    def crash(self) -> None:
        """End the run. Only the checkpoint and the sink remain."""
        self.reader = None

    def step(self, crash: Callable[[], bool] = lambda: False) -> bool:
        """Run a micro-batch, which crashes if `crash` returns True. Return False if none is due."""
        reader = self.reader or self.start(available_now=self.is_ending)
        start = self._start(reader)
        if len(self.offsets) == self.committed:
            end = json.dumps(reader.latestOffset(json.loads(start), LIMIT))
            if end == start:
                self.repeated = None
                return False
            if crash():
                return self._crashed()
            self.offsets.append(end)
        if crash():
            return self._crashed()
        number = self.committed
        rows = self._rows(reader, number, json.loads(start), crash)
        if rows is None or crash():
            return self._crashed()
        self.sink[number] = rows
        if crash():
            return self._crashed()
        self.committed += 1
        return True

    def run(self, *, available_now: bool = False) -> None:
        """Run micro-batches until there are none left."""
        self.start(available_now=available_now)
        while self.step():
            pass
        self.crash()

    @property
    def may_forget(self) -> bool:
        """Return True if a loss found in a repeated micro-batch is not in an offset yet.

        As documented, the loss is forgotten if the query ends now.
        """
        return self.repeated == self.committed - 1 and len(self.offsets) == self.committed

    @property
    def ends(self) -> list[Offset]:
        """The stored offsets."""
        return [json.loads(text) for text in self.offsets]

    def _start(self, reader: StreamReader) -> str:
        if self.committed:
            return self.offsets[self.committed - 1]
        return json.dumps(reader.initialOffset())

    def _crashed(self) -> bool:
        self.crash()
        return True

    def _rows(
        self, reader: StreamReader, number: int, start: Offset, crash: Callable[[], bool]
    ) -> list[Row] | None:
        found = []
        parts = reader.partitions(start, json.loads(self.offsets[number]))
        self.planned[number] = repr([p for p in parts if isinstance(p, SnapshotPartition)])
        for part in parts:
            for batch in reader.read(part):
                found += batch.to_pylist()
                if crash():
                    return None
        return found


Make = Callable[..., StreamReader]


@pytest.fixture
def make(cluster: EmbeddedScylla, session: Session, clock: ManualClock) -> Iterator[Make]:
    """Creates readers of table `t`, in queries that start with a snapshot."""
    session.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
    )
    known = {
        "hosts": cluster.contact_point,
        "path": "ks.t",
        "consistencyLevel": "ONE",
        "format": "changes",
        "snapshot": "initial",
        "rangeDeletes": "emit",
        "maxPartitions": "2",
        "fetchSize": "7",
        "confidenceWindow": "5s",
    }
    with stream_readers(known, clock) as make:
        yield make


def create(session: Session, *, statics: bool = False, ttl: int = 86_400) -> None:
    """Create table `t`."""
    static = "s int static, " if statics else ""
    session.execute(
        f"CREATE TABLE ks.t (pk int, ck int, {static}v int, PRIMARY KEY (pk, ck)) "
        f"WITH cdc = {{'enabled': true, 'postimage': true, 'ttl': {ttl}}}"
    )


def fill(session: Session, rows: int, partitions: int) -> None:
    """Insert rows into table `t`."""
    for ck in range(rows):
        session.execute(
            "INSERT INTO ks.t (pk, ck, v) VALUES (%s, %s, %s)", (ck % partitions, ck, ck)
        )


def keys(rows: list[Row]) -> list[Key]:
    """Return the keys of rows."""
    return [(row["pk"], row["ck"]) for row in rows]


def token_of(pk: int) -> int:
    """Return the token of a partition."""
    return murmur3(pk.to_bytes(4, "big"))


def test_micro_batches_are_resumed_by_token(
    make: Make, session: Session, clock: ManualClock
) -> None:
    """A restarted query continues after the last token, with the same position."""
    create(session)
    fill(session, 100, 50)
    clock.advance(60 * SECOND)
    query = Query(lambda: make(maxRowsPerTrigger="12"))
    while not query.ends or query.ends[-1]["snapshot"] != "done":
        clock.advance(SECOND)
        query.start()
        query.step()
        query.crash()
    assert len(query.ends) >= 9
    assert {end["position"] for end in query.ends} == {query.ends[0]["began"]}
    found = [end["token"] for end in query.ends[:-1]]
    assert found == sorted(set(found))
    for (low, high), rows in zip(pairwise([MIN_TOKEN, *found]), query.sink.values(), strict=False):
        assert 0 < len(rows) <= 12
        assert all(low < token_of(row["pk"]) <= high for row in rows)
    delivered = [key for rows in query.sink.values() for key in keys(rows)]
    assert sorted(delivered) == sorted((ck % 50, ck) for ck in range(100))


@pytest.mark.slow
def test_bytes(make: Make, session: Session) -> None:
    """A limit in bytes allows fewer rows if they are larger. The stricter of two limits applies."""
    session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v text) WITH cdc = {'enabled': true}")
    for pk in range(200):
        session.execute("INSERT INTO ks.t (pk, v) VALUES (%s, %s)", (pk, "x" * 1_000))
    given = {"includeDelta": "true", "fetchSize": "50"}
    query = Query(lambda: make(maxBytesPerTrigger="20k", **given))
    query.run(available_now=True)
    sizes = [len(rows) for rows in query.sink.values()]
    assert sum(sizes) == 200
    assert 15 <= max(sizes) <= 20
    query = Query(lambda: make(maxBytesPerTrigger="20k", maxRowsPerTrigger="5", **given))
    query.run(available_now=True)
    assert max(len(rows) for rows in query.sink.values()) == 5


@pytest.mark.slow
def test_a_large_partition_comes_alone(make: Make, session: Session) -> None:
    """A large partition's rows have the same token, so they stay together and exceed the limit."""
    create(session)
    fill(session, 60, 1)
    for pk in range(1, 21):
        session.execute("INSERT INTO ks.t (pk, ck) VALUES (%s, 0)", (pk,))
    query = Query(lambda: make(maxRowsPerTrigger="10"))
    query.run(available_now=True)
    sizes = sorted(len(rows) for rows in query.sink.values())
    assert sizes[-1] == 60
    assert sizes[-2] <= 10
    assert sum(sizes) == 80


def test_available_now_ends_with_snapshot_and_log(
    make: Make, session: Session, clock: ManualClock
) -> None:
    """After the snapshot, the query delivers the log rows that had settled when the run began."""
    create(session)
    fill(session, 40, 20)
    clock.advance(60 * SECOND)
    query = Query(lambda: make(maxRowsPerTrigger="15"))
    query.start(available_now=True)
    query.step()
    query.crash()
    session.execute("UPDATE ks.t SET v = -1 WHERE pk = 3 AND ck = 3")
    clock.advance(60 * SECOND)
    query.run(available_now=True)
    assert query.ends[-1]["snapshot"] == "done"
    assert query.ends[-1]["position"] == clock.now() - 5 * SECOND
    changes = query.sink[len(query.ends) - 1]
    assert [(row["pk"], row["v"]) for row in changes] == [(3, -1)]


def test_a_trigger_that_asks_for_everything_gets_it(
    make: Make, session: Session, clock: ManualClock
) -> None:
    """A trigger that requests everything gets the remaining rows and the log in one micro-batch."""
    create(session)
    fill(session, 40, 20)
    clock.advance(60 * SECOND)
    query = Query(lambda: make(maxRowsPerTrigger="15"))
    query.start()
    query.step()
    session.execute("UPDATE ks.t SET v = -1 WHERE pk = 3 AND ck = 3")
    clock.advance(60 * SECOND)
    reader, before = query.start(), query.ends[-1]
    end = reader.latestOffset(before, ReadAllAvailable())
    assert (end["snapshot"], end["position"]) == ("done", clock.now() - 5 * SECOND)
    parts = reader.partitions(before, end)
    found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert len(found) == 40 - len(query.sink[0]) + 1


@pytest.mark.skipif(not TELLS_START, reason="this Spark does not tell which trigger runs")
def test_the_log_comes_after_the_table(make: Make, session: Session, clock: ManualClock) -> None:
    """Even without limits, the log is read in separate micro-batches, after the table."""
    create(session)
    fill(session, 40, 20)
    clock.advance(60 * SECOND)
    query = Query(make)
    query.start()
    query.step()
    assert query.ends[-1]["snapshot"] == "done"
    assert len(query.sink[0]) == 40
    session.execute("UPDATE ks.t SET v = -1 WHERE pk = 3 AND ck = 3")
    clock.advance(60 * SECOND)
    while query.step():
        pass
    assert keys(query.sink[1]) == [(3, 3)]


def test_an_empty_table(make: Make, session: Session, clock: ManualClock) -> None:
    """The snapshot of an empty table is complete after one micro-batch."""
    create(session)
    query = Query(lambda: make(maxRowsPerTrigger="1"))
    query.start()
    assert query.step()
    assert query.ends[-1]["snapshot"] == "done"
    assert query.sink == {0: []}
    session.execute("INSERT INTO ks.t (pk, ck, v) VALUES (1, 1, 1)")
    clock.advance(10 * SECOND)
    assert query.step()
    assert keys(query.sink[1]) == [(1, 1)]


def test_a_snapshot_that_outlasts_the_log_loses_rows(
    make: Make, session: Session, clock: ManualClock
) -> None:
    """A query ends with an error if rows of the log expire before its snapshot is complete."""
    create(session, ttl=3_600)
    fill(session, 40, 20)
    query = Query(lambda: make(maxRowsPerTrigger="15"))
    query.start()
    query.step()
    clock.advance(2 * 3_600 * SECOND)
    with pytest.raises(DataLossError, match="expired before they were read"):
        query.step()
    query = Query(lambda: make(maxRowsPerTrigger="15", onDataLoss="continue"))
    query.start()
    query.step()
    clock.advance(2 * 3_600 * SECOND)
    assert query.step()


def test_an_offset_of_a_snapshot_is_no_start(make: Make, session: Session) -> None:
    """An offset within a snapshot is rejected as a start, because rows would be skipped."""
    create(session)
    fill(session, 40, 20)
    query = Query(lambda: make(maxRowsPerTrigger="15"))
    query.start()
    query.step()
    with pytest.raises(CheckpointError, match=r"startingOffsets.*in the middle of a snapshot"):
        make(snapshot="none", startingOffsets=query.offsets[0])
    with pytest.raises(CheckpointError, match="snapshot is 'none'"):
        make(snapshot="none").latestOffset(query.ends[0], LIMIT)


@frozen
class Written:
    """A row that is in the table and unchanged throughout the snapshot."""

    key: Key
    v: int | None


def _write(session: Session, draw: random.Random, partitions: int) -> None:
    """Insert, update or delete rows, in partitions that may or may not have been read."""
    pk, ck = draw.randrange(partitions + 3), draw.randrange(6)
    session.execute(
        draw.choice(
            [
                f"UPDATE ks.t SET v = {draw.randrange(100)} WHERE pk = {pk} AND ck = {ck}",
                f"INSERT INTO ks.t (pk, ck, v) VALUES ({pk}, {ck}, {draw.randrange(100)})",
                f"DELETE FROM ks.t WHERE pk = {pk} AND ck = {ck}",
                f"DELETE FROM ks.t WHERE pk = {pk}",
                f"DELETE FROM ks.t WHERE pk = {pk} AND ck > {ck}",
            ]
        )
    )


def _applied(rows: list[Row], copy: dict[Key, int | None]) -> None:
    """Apply a micro-batch's changes in order of version and sequence, as documented."""
    for row in sorted(rows, key=lambda row: (row["_commit_version"], row["_sequence"])):
        key = row["pk"], row["ck"]
        match row["_change_type"]:
            case "insert" | "update_postimage":
                copy[key] = row["v"]
            case "delete":
                copy.pop(key, None)
            case "delete_partition":
                for each in [each for each in copy if each[0] == row["pk"]]:
                    del copy[each]
            case "delete_range":
                for each in [each for each in copy if _is_in(each, row)]:
                    del copy[each]


def _is_in(key: Key, row: Row) -> bool:
    """Return True if a deleted range, which has only a lower bound, includes a row."""
    low = row["_range"]["start"]["ck"]
    return key[0] == row["pk"] and key[1] is not None and key[1] > low


def check_history(seed: int, make: Make, session: Session, clock: ManualClock) -> None:
    """Run a query with random crashes and writes. Check the micro-batches and the copy."""
    draw = random.Random(seed)
    session.execute("DROP TABLE IF EXISTS ks.t")
    create(session)
    clock.advance(SECOND)
    partitions = draw.choice([1, 5, 30])
    for _ in range(draw.choice([0, 20, 120])):
        pk, ck = draw.randrange(partitions), draw.randrange(6)
        session.execute(f"INSERT INTO ks.t (pk, ck, v) VALUES ({pk}, {ck}, {draw.randrange(100)})")
    clock.advance(draw.choice([0, 3, 100]) * SECOND)
    limit = draw.choice([1, 7, 25])
    given = {"maxRowsPerTrigger": str(limit), "lateRows": draw.choice(["ignore", "deliver"])}
    query = Query(lambda: make(**given))
    chance, writes = draw.choice([0, 0.05, 0.3]), draw.choice([0, 1, 4])
    before = _rows(session, "WRITETIME(v)")
    while not query.committed or query.ends[query.committed - 1]["snapshot"] != "done":
        for _ in range(draw.randrange(writes + 1)):
            clock.advance(draw.randrange(SECOND))
            _write(session, draw, partitions)
        query.is_ending = draw.random() < 0.2
        assert query.step(lambda: draw.random() < chance)
    unchanged = before.items() & _rows(session, "WRITETIME(v)").items()
    table_batches = query.committed
    for _ in range(draw.randrange(3)):
        _write(session, draw, partitions)
        clock.advance(SECOND)
    clock.advance(10 * SECOND)
    query.run()

    position = query.ends[0]["position"]
    snapshot = [query.sink[number] for number in range(table_batches)]
    delivered = Counter(key for rows in snapshot for key in keys(rows))
    assert set(delivered.values()) <= {1}, "a row of the snapshot came twice"
    shown = {(row["pk"], row["ck"]): row["v"] for rows in snapshot for row in rows}
    written = {key for key, _ in unchanged}
    assert written <= set(delivered), "a row came in no micro-batch"
    if not writes:  # writes after the plan may enlarge a micro-batch beyond the limit
        assert all(len(rows) <= limit or len({row["pk"] for row in rows}) == 1 for rows in snapshot)
    assert {end["position"] for end in query.ends[:table_batches]} == {position}
    copy: dict[Key, int | None] = {}
    for number in sorted(query.sink):
        _applied(query.sink[number], copy)
    assert copy == _rows(session), "the copy is not the table"
    assert shown.keys() == delivered.keys()


def _rows(session: Session, value: str = "v") -> dict[Key, int | None]:
    return {(pk, ck): v for pk, ck, v in session.execute(f"SELECT pk, ck, {value} FROM ks.t")}


def check_seeds(count: int, check: Callable[[int], None]) -> None:
    """Run `check` for `count` seeds. The error of a failed check contains its seed."""
    for seed in range(FIRST, FIRST + count):
        try:
            check(seed)
        except BaseException as error:
            error.add_note(f"SCYLLA_CDC_SEED={seed} SCYLLA_CDC_SEEDS=1")
            raise


@pytest.mark.slow
def test_some_histories(make: Make, session: Session, clock: ManualClock) -> None:
    """Table rows are delivered once, within limits, before the log. The copy equals the table."""
    check_seeds(5, lambda seed: check_history(seed, make, session, clock))


@pytest.mark.slow
@pytest.mark.timeout(60 + 5 * SEEDS)
def test_every_history(make: Make, session: Session, clock: ManualClock) -> None:
    """Rows are delivered once, and the copy equals the table, for many seeds."""
    check_seeds(SEEDS, lambda seed: check_history(seed, make, session, clock))


@define
class Copy:
    """A copy of the table with row versions, so that it can delete old rows after a snapshot."""

    rows: dict[Key, tuple[str, int | None]] = field(factory=dict)
    marks: list[str] = field(factory=list)

    @classmethod
    def of(cls, query: Query) -> Self:
        """Return the copy after all micro-batches of a query."""
        copy = cls()
        for number in sorted(query.sink):
            copy.apply(query.sink[number])
        return copy

    def apply(self, batch: list[Row]) -> None:
        """Apply a micro-batch's changes. After a snapshot, delete all rows with older versions."""
        plain = {key: value for key, (_, value) in self.rows.items()}
        for row in sorted(batch, key=lambda row: (row["_commit_version"], row["_sequence"])):
            kind, version = row["_change_type"], row["_commit_version"]
            if kind.startswith("snapshot"):
                self.marks.append(kind)
                assert row["pk"] is None
            if kind == "snapshot_complete":
                plain = {key: v for key, v in plain.items() if self.rows[key][0] >= version}
            _applied([row], plain)
            if kind in ("insert", "update_postimage"):
                self.rows[row["pk"], row["ck"]] = version, row["v"]
            self.rows = {key: self.rows[key] for key in plain}

    @property
    def table(self) -> dict[Key, int | None]:
        """The rows of the copy, without versions."""
        return {key: value for key, (_, value) in self.rows.items()}


AGAIN = {"onDataLoss": "resnapshot", "maxRowsPerTrigger": "15"}


@pytest.mark.slow
def test_a_new_snapshot_after_a_loss(make: Make, session: Session, clock: ManualClock) -> None:
    """After a loss, a query continues with a new snapshot.

    Two rows mark where the snapshot begins and ends. Until the snapshot is complete, the offsets
    record the lost span.
    """
    create(session, ttl=3_600)
    fill(session, 40, 20)
    query = Query(lambda: make(**AGAIN))
    clock.advance(60 * SECOND)
    query.run()
    session.execute("DELETE FROM ks.t WHERE pk = 3")
    session.execute("UPDATE ks.t SET v = -1 WHERE pk = 4 AND ck = 4")
    lost_at, before = clock.now(), len(query.ends)
    clock.advance(3 * 3_600 * SECOND)
    session.execute("INSERT INTO ks.t (pk, ck, v) VALUES (1, 1000, 1)")
    clock.advance(10 * SECOND)
    query.run(available_now=True)
    copy = Copy.of(query)
    assert copy.table == _rows(session)
    assert copy.marks == ["snapshot_begin", "snapshot_complete"] * 2
    ends = [end for end in query.ends if "lost" in end]
    assert ends == [end for end in query.ends[before:] if end["snapshot"] == "pending"]
    end = ends[0]
    assert end["lost"][0] <= lost_at < end["lost"][1] < end["position"]


@pytest.mark.parametrize("done", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("snapshot", ["none", "initial"])
def test_only_resnapshot_completes_a_new_snapshot(
    make: Make, session: Session, clock: ManualClock, snapshot: str, done: int
) -> None:
    """Any micro-batch of a new snapshot is repeated only with `resnapshot`.

    Other modes have no marker rows, so a copy would keep rows that the table no longer has.
    """
    query = caught_up(make, session, clock, snapshot)
    session.execute("DELETE FROM ks.t WHERE pk = 3")
    clock.advance(3 * 3_600 * SECOND)
    for _ in range(done):
        query.step()
    stops = iter([False, True])
    query.step(lambda: next(stops))  # stores the offset, and reads nothing
    assert len(query.offsets) == query.committed + 1
    query.make = lambda: make(**{**AGAIN, "snapshot": snapshot, "onDataLoss": "continue"})
    with pytest.raises(CheckpointError, match=r"onDataLoss is 'continue', but .* 'resnapshot'"):
        query.run()
    query.make = lambda: make(**AGAIN, snapshot=snapshot)
    query.run()
    copy = Copy.of(query)
    assert copy.table == _rows(session)
    assert copy.marks[-2:] == ["snapshot_begin", "snapshot_complete"]
    query.make = lambda: make(**{**AGAIN, "snapshot": snapshot, "onDataLoss": "fail"})
    query.run()


def caught_up(make: Make, session: Session, clock: ManualClock, snapshot: str = "none") -> Query:
    """Return a query that has read the log of a table with 40 rows."""
    create(session, ttl=3_600)
    fill(session, 40, 20)
    clock.advance(60 * SECOND)
    query = Query(lambda: make(**AGAIN, snapshot=snapshot))
    query.run()
    return query


def expired_in_plan(make: Make, session: Session, clock: ManualClock) -> Query:
    """Return a query whose next micro-batch is stored, but lost rows before it was read."""
    query = caught_up(make, session, clock)
    session.execute("DELETE FROM ks.t WHERE pk = 3")
    clock.advance(60 * SECOND)
    query.start()
    stops = iter([False, True])
    query.step(lambda: next(stops))  # stores the offset, and reads nothing
    assert len(query.offsets) == query.committed + 1
    clock.advance(3_540 * SECOND + 90 * SECOND)
    return query


def test_a_loss_that_shows_when_a_micro_batch_is_repeated(
    make: Make, session: Session, clock: ManualClock
) -> None:
    """If rows expire before a micro-batch is repeated, a new snapshot follows the repetition.

    The repeated micro-batch contains the remaining rows.
    """
    query = expired_in_plan(make, session, clock)
    query.run(available_now=True)
    copy = Copy.of(query)
    assert copy.table == _rows(session)
    assert copy.marks == ["snapshot_begin", "snapshot_complete"]


def test_a_loss_that_shows_when_a_micro_batch_is_repeated_is_logged(
    make: Make, session: Session, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The loss is logged once, when the micro-batch is planned again.

    The query may end with this micro-batch, before it plans the new snapshot.
    """
    query = expired_in_plan(make, session, clock)
    assert "rows_lost" not in caplog.text
    assert query.step()
    [record] = [record for record in caplog.records if "rows_lost" in record.getMessage()]
    start = format_timestamp(query.ends[-2]["position"])
    assert f"table='ks.t' start='{start}'" in record.getMessage()
    assert "start over with a new target" in record.getMessage()
    while query.step():
        pass
    assert query.ends[query.committed - 1]["snapshot"] == "done"
    assert caplog.text.count("rows_lost") == 1


def test_a_loss_is_remembered_when_another_micro_batch_is_planned(
    make: Make, session: Session, clock: ManualClock
) -> None:
    """The next offset begins a new snapshot, even if the last plan found nothing lost."""
    query = expired_in_plan(make, session, clock)
    query.start()
    assert query.reader is not None
    start, end = query.ends[-2:]
    later, latest = ({**end, "position": clock.now() - ago * SECOND} for ago in (120, 60))
    for offsets in ((start, end), (later, latest)):
        query.reader.partitions(*offsets)
    assert query.reader.latestOffset(latest, LIMIT)["snapshot"] == "pending"


def test_a_loss_that_shows_when_rows_were_read(
    make: Make, session: Session, clock: ManualClock
) -> None:
    """If rows expire before the tasks read them, the micro-batch fails.

    After a restart, the query delivers the remaining rows, and then a new snapshot.
    """
    query = caught_up(make, session, clock)
    session.execute("DELETE FROM ks.t WHERE pk = 3")
    session.execute("INSERT INTO ks.t (pk, ck, v) VALUES (1, 1000, 1)")
    clock.advance(60 * SECOND)
    query.start()
    reader = query.reader
    assert reader is not None
    start = query.ends[-1]
    query.offsets.append(json.dumps(reader.latestOffset(start, LIMIT)))
    parts = reader.partitions(start, query.ends[-1])
    clock.advance(3_600 * SECOND)
    with pytest.raises(DataLossError, match="start the query again, and it reads the table again"):
        [batch for part in parts for batch in reader.read(part)]
    query.crash()
    query.run(available_now=True)
    copy = Copy.of(query)
    assert copy.table == _rows(session)
    assert copy.marks == ["snapshot_begin", "snapshot_complete"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "log", "snapshot": "none"}, "onDataLoss is 'resnapshot': a snapshot has rows"),
        (
            {"partitionKey": '{"pk": 1}', "snapshot": "none"},
            "partitionKey .* the whole table as it is now",
        ),
    ],
)
def test_what_excludes_a_new_snapshot(make: Make, given: dict[str, str], message: str) -> None:
    """Options that exclude a new snapshot are rejected when the query is created."""
    with pytest.raises(ConfigurationError, match=message):
        make(**AGAIN, **given)


def check_losses(seed: int, make: Make, session: Session, clock: ManualClock) -> None:
    """Write, crash and pause at random, with some pauses longer than the TTL. Check the copy."""
    draw = random.Random(seed)
    session.execute("DROP TABLE IF EXISTS ks.t")
    create(session, ttl=3_600)
    clock.advance(10 * SECOND)
    given = {
        **AGAIN,
        "snapshot": draw.choice(["none", "initial"]),
        "maxRowsPerTrigger": draw.choice(["4", "1000"]),
        "lateRows": draw.choice(["ignore", "deliver"]),
    }
    query = Query(lambda: make(**given))
    chance = draw.choice([0, 0.05, 0.3])
    query.step()
    for _ in range(draw.randrange(2, 6)):
        for _ in range(draw.choice([0, 3, 30])):
            clock.advance(draw.randrange(60 * SECOND))
            _write(session, draw, 8)
        clock.advance(draw.choice([10, 1_800, 3_590, 7_200, 20_000]) * SECOND)
        if draw.random() < 0.5 and not query.may_forget:
            query.crash()
        for _ in range(draw.randrange(8)):
            query.step(lambda: draw.random() < chance and not query.may_forget)
            for _ in range(draw.choice([0, 2])):
                _write(session, draw, 8)
                clock.advance(draw.randrange(SECOND))
            clock.advance(draw.choice([0, 1, 600]) * SECOND)
    clock.advance(10 * SECOND)
    while query.may_forget:
        query.step()
    query.run()
    copy = Copy.of(query)
    assert copy.table == _rows(session), "the copy is not the table"


@pytest.mark.slow
def test_some_losses(make: Make, session: Session, clock: ManualClock) -> None:
    """A copy that deletes older rows after each snapshot equals the table, for a few seeds."""
    check_seeds(4, lambda seed: check_losses(seed, make, session, clock))


@pytest.mark.slow
@pytest.mark.timeout(60 + 5 * SEEDS)
def test_every_loss(make: Make, session: Session, clock: ManualClock) -> None:
    """A copy that deletes older rows after each snapshot equals the table, for many seeds."""
    check_seeds(SEEDS, lambda seed: check_losses(seed, make, session, clock))
