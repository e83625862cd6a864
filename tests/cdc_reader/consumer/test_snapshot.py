"""A consumer that begins with the existing rows: order, checkpoints, restarts and shards."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from cdc_reader.changes.change import Change
from cdc_reader.changes.operation import ChangeOperation
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.config import ConnectionConfig
from cdc_reader.consumer import CdcConsumer, ConsumerConfig
from cdc_reader.consumer.aio import AsyncChanges
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError, ConfigurationError, HandlerError
from cdc_reader.metrics import (
    CHANGES,
    OUTSTANDING,
    SNAPSHOT_ROWS,
    SNAPSHOT_SECONDS_LEFT,
    SNAPSHOT_SHARE,
    MemoryMetrics,
)
from cdc_reader.reading.cursor import Checkpoint, SnapshotProgress
from tests.cdc_reader.consumer.conftest import PATIENCE, READ, now
from tests.cdc_reader.support.tuned import tuning_of_module

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

Write = Callable[..., None]
SMALL = evolve(READ, fetch_size=3)

few_at_once = tuning_of_module(in_flight=3)


class Copy:
    """A handler that keeps the latest value of each row, and counts the snapshot's rows."""

    def __init__(self, limit: int = 0) -> None:
        self.rows: dict[tuple[int, int], int] = {}
        self.times: Counter[tuple[int, int]] = Counter()
        self.order: defaultdict[int, list[str]] = defaultdict(list)
        self._limit = limit
        self._lock = threading.Lock()
        self.then: Callable[[], None] = lambda: None

    def __call__(self, change: Change) -> None:
        with self._lock:
            key = change.key["p"], change.key["c"]
            self.order[key[0]].append(change.operation.value)
            if change.operation is ChangeOperation.SNAPSHOT:
                assert change.after is not None
                self.rows[key] = change.after["v"]
                self.times[key] += 1
            elif change.operation.is_delete:
                self.rows.pop(key, None)
            else:
                self.rows[key] = change.deltas["v"].value  # type: ignore[union-attr]
            if self._limit and sum(self.times.values()) == self._limit:
                self.then()


def consumer(connection: ConnectionConfig, table: str, copy: Copy, **options: Any) -> CdcConsumer:
    """Return a consumer that ends when it has caught up."""
    given = {"read": SMALL, "end": now(), "snapshot": "initial", **options}
    return CdcConsumer(connection, table, copy, application="app", **given)


def name_of(table: str, shard: str = "1/1") -> CheckpointName:
    """Return the name of a table's checkpoint."""
    return CheckpointName("app", TableName.parse(table), shard)


def test_rows_come_first_and_changes_follow(
    connection: ConnectionConfig, scylla: Scylla, table: str, write: Write
) -> None:
    """Existing rows, even those no longer in the log, come before changes of their partition."""
    write(table, 50)
    scylla.session.execute(f"TRUNCATE {table}_scylla_cdc_log")
    copy, store, metrics = Copy(limit=1), MemoryCheckpoints(), MemoryMetrics()
    end = now() + 2_000_000
    update = f"UPDATE {table} USING TIMESTAMP {end - 1} SET v = -1 WHERE p = 1 AND c = 1"
    copy.then = lambda: scylla.session.execute(update)
    consumer(connection, table, copy, end=end, checkpoints=store, metrics=metrics).run()
    assert copy.rows == {(n % 7, n): n for n in range(50)} | {(1, 1): -1}
    assert all(count == 1 for count in copy.times.values())
    for kinds in copy.order.values():
        assert kinds == sorted(kinds)  # works because "snapshot" < "update"
    kept = store.load(name_of(table))
    assert kept is not None
    assert (kept.snapshot, kept.position >= end) == (None, True)
    name = TableName.parse(table)
    assert metrics[SNAPSHOT_ROWS, name] == 50
    assert metrics[CHANGES, name] == 51
    assert (metrics[SNAPSHOT_SHARE, name], metrics[SNAPSHOT_SECONDS_LEFT, name]) == (1, 0)
    assert metrics[OUTSTANDING, name] == 0


def test_a_second_run_has_no_snapshot(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """A second run takes no snapshot, and continues with the log."""
    write(table, 5)
    store = MemoryCheckpoints()
    consumer(connection, table, Copy(), checkpoints=store).run()
    write(table, 5, first=5)
    copy = Copy()
    consumer(connection, table, copy, checkpoints=store).run()
    assert (sorted(copy.rows.values()), copy.times) == ([5, 6, 7, 8, 9], Counter())


@pytest.mark.parametrize("stopped_after", [1, 10, 49, 50])
def test_an_interrupted_run_is_resumed(
    connection: ConnectionConfig, table: str, write: Write, stopped_after: int
) -> None:
    """After an interruption, only rows of unfinished ranges are delivered again."""
    write(table, 50, partitions=25)
    store, first = MemoryCheckpoints(), Copy(limit=stopped_after)
    one = consumer(connection, table, first, checkpoints=store, config=ConsumerConfig(workers=1))
    first.then = one.stop
    one.run()
    kept = store.load(name_of(table))
    assert kept is not None
    done = 0 if kept.snapshot is None else kept.snapshot.rows
    assert kept.snapshot is not None
    second = Copy()
    consumer(connection, table, second, checkpoints=store).run()
    assert first.rows | second.rows == {(n % 25, n): n for n in range(50)}
    assert sum(second.times.values()) == 50 - done
    assert done <= sum(first.times.values())


def test_rows_that_are_not_handled_keep_their_range(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """If the handler fails on a row, the run ends, and the next run delivers the row again."""
    write(table, 50)
    store = MemoryCheckpoints()

    def fail(change: Change) -> None:
        if change.key["c"] == 30:
            raise ValueError("no")

    failing = ConsumerConfig(attempts=1)
    given: dict[str, Any] = {"application": "app", "read": SMALL, "checkpoints": store}
    with pytest.raises(HandlerError, match="snapshot of"):
        CdcConsumer(connection, table, fail, snapshot="initial", config=failing, **given).run()
    copy = Copy()
    consumer(connection, table, copy, checkpoints=store).run()
    assert copy.rows[30 % 7, 30] == 30


def test_a_snapshot_begun_has_to_be_completed(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """With `snapshot="none"`, an unfinished snapshot is rejected, so that no row is skipped."""
    write(table, 5)
    store = MemoryCheckpoints()
    store.save(name_of(table), Checkpoint(now(), snapshot=SnapshotProgress(now())))
    with pytest.raises(CheckpointError, match="give 'initial' to continue it"):
        consumer(connection, table, Copy(), checkpoints=store, snapshot="none").run()


def test_a_start_and_a_snapshot_exclude_each_other(connection: ConnectionConfig) -> None:
    """A start and a snapshot cannot be combined, and an unknown mode is rejected."""
    with pytest.raises(ConfigurationError, match="leave out start"):
        consumer(connection, "ks.t", Copy(), start="now")
    with pytest.raises(ConfigurationError, match="none, initial"):
        consumer(connection, "ks.t", Copy(), snapshot="sometimes")


@pytest.mark.parametrize("count", [2, 3])
def test_shards_share_the_rows_and_the_position(
    connection: ConnectionConfig, table: str, write: Write, count: int
) -> None:
    """Each row is delivered by one shard, and all shards then start from the same position."""
    write(table, 60, partitions=60)
    store, copies = MemoryCheckpoints(), [Copy() for _ in range(count)]
    positions = set()
    for number, copy in enumerate(copies):
        shard = f"{number + 1}/{count}"
        one = consumer(connection, table, copy, shard=shard, checkpoints=store)
        write(table, 60, first=60, partitions=60)  # between creation and run
        one.run()
        begun = store.load(name_of(table, f"0/{count}"))
        assert begun is not None
        positions.add(begun.position)
    assert len(positions) == 1
    times = sum((copy.times for copy in copies), Counter())
    assert set(times.values()) == {1}
    found = {key: value for copy in copies for key, value in copy.rows.items()}
    assert {c for _, c in found} == set(range(120))


def test_tables_have_snapshots_of_their_own(
    connection: ConnectionConfig, scylla: Scylla, keyspace: str, table: str, write: Write
) -> None:
    """With `delivery="ordered"`, the snapshot of each table contains all rows of the table."""
    other = f"{keyspace}.u"
    scylla.session.execute(
        f"CREATE TABLE {other} (p int, c int, v int, PRIMARY KEY (p, c)) "
        "WITH cdc = {'enabled': true}"
    )
    write(table, 20)
    write(other, 20)
    seen: list[Change] = []
    CdcConsumer(
        connection,
        [table, other],
        seen.append,
        application="app",
        checkpoints=MemoryCheckpoints(),
        snapshot="initial",
        end=now(),
        read=evolve(SMALL, delivery="ordered"),
        config=ConsumerConfig(workers=1),
    ).run()
    rows = [each for each in seen if each.operation is ChangeOperation.SNAPSHOT]
    assert Counter(str(each.table) for each in rows) == {table: 20, other: 20}


def test_reading_waits_for_a_slow_handler(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """While a handler is slow, at most one page beyond the limit is in flight."""
    write(table, 60)
    metrics, most = MemoryMetrics(), 0.0
    name = TableName.parse(table)
    entered = threading.Event()

    def handle(_: Change) -> None:
        nonlocal most
        entered.set()
        most = max(most, metrics[OUTSTANDING, name])

    CdcConsumer(
        connection,
        table,
        handle,
        application="app",
        checkpoints=MemoryCheckpoints(),
        snapshot="initial",
        end=now(),
        read=SMALL,
        config=ConsumerConfig(max_bytes=1),
        metrics=metrics,
    ).run()
    assert entered.wait(PATIENCE)
    assert most <= SMALL.fetch_size


def test_a_loop_over_changes_begins_with_rows(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """An async loop yields existing rows too. Requesting a row acknowledges the previous one."""
    write(table, 12)
    store = MemoryCheckpoints()
    given: dict[str, Any] = {"application": "app", "read": SMALL, "checkpoints": store}
    changes = AsyncChanges(connection, table, snapshot="initial", end=now(), **given)

    async def all_of() -> list[Change]:
        return [change async for change in changes]

    found = [(change.operation, change.key["c"]) for change in asyncio.run(all_of())]
    rows = sorted(c for operation, c in found if operation is ChangeOperation.SNAPSHOT)
    assert rows == list(range(12))
    kept = store.load(name_of(table))
    assert kept is not None
    assert kept.snapshot is None
