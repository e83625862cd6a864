"""A consumer that takes a new snapshot, to correct copies, after rows have expired unread.

`SCYLLA_CDC_SEEDS` sets the number of histories (60 if unset), and `SCYLLA_CDC_SEED` sets the
first seed.
"""

from __future__ import annotations

import asyncio
import os
import random
from datetime import timedelta
from typing import Any

import pytest
from attrs import define, evolve, field

from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.config import ConnectionConfig
from cdc_reader.consumer import CdcConsumer
from cdc_reader.consumer.aio import AsyncChanges
from cdc_reader.consumer.events import (
    ConsumerEvent,
    RowsLost,
    SnapshotBegins,
    SnapshotComplete,
    WindowHandled,
)
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError, ConfigurationError, DataLossError, HandlerError
from cdc_reader.metrics import LATE_ROWS, LOSSES, ROWS, MemoryMetrics
from cdc_reader.reader import CdcReader
from cdc_reader.testing import EmbeddedScylla, ManualClock
from tests.cdc_reader.consumer.conftest import READ
from tests.cdc_reader.support.tuned import tuned

SEEDS = int(os.environ.get("SCYLLA_CDC_SEEDS", "60"))
FIRST = int(os.environ.get("SCYLLA_CDC_SEED", "1"))
SECOND = 1_000_000
TTL = 3_600
HOUR = TTL * SECOND
NAME = TableName("ks", "t")
AGAIN = evolve(READ, data_loss="resnapshot")

pytestmark = pytest.mark.needs("faults")  # runs a separate server

Key = tuple[int, int]


@pytest.fixture
def server(server: EmbeddedScylla) -> EmbeddedScylla:
    """A server with a table."""
    create(server)
    return server


def create(server: EmbeddedScylla) -> None:
    """Create the table. Its log keeps rows for an hour."""
    server.execute(
        "CREATE TABLE ks.t (p int, c int, v int, PRIMARY KEY (p, c)) "
        f"WITH cdc = {{'enabled': true, 'ttl': {TTL}}}"
    )


def create_log_again(server: EmbeddedScylla) -> None:
    """Drop the table's log and create it again."""
    server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': false}")
    server.execute("DROP TABLE ks.t_scylla_cdc_log")
    server.execute(f"ALTER TABLE ks.t WITH cdc = {{'enabled': true, 'ttl': {TTL}}}")


@define
class Copy:
    """A copy of the table, with timestamps and values, that applies changes and events."""

    server: EmbeddedScylla
    clock: ManualClock
    store: MemoryCheckpoints = field(factory=MemoryCheckpoints)
    rows: dict[Key, tuple[int, int | None]] = field(factory=dict)
    events: list[ConsumerEvent] = field(factory=list)
    seen: list[str] = field(factory=list)

    def handle(self, change: Change) -> None:
        """Apply a change."""
        self.seen.append(str(change.operation))
        if str(change.operation) == "row_delete":
            self.rows.pop(self._key(change), None)
        elif str(change.operation) == "partition_delete":
            for key in [key for key in self.rows if key[0] == change.key["p"]]:
                del self.rows[key]
        else:
            written = change.deltas.get("v")
            value = getattr(written, "value", None)
            self.rows[self._key(change)] = change.timestamp, value

    def tell(self, event: ConsumerEvent) -> None:
        """Record an event of a snapshot; delete all rows that are older than a complete one."""
        if not isinstance(event, WindowHandled):
            self.events.append(event)
        if isinstance(event, SnapshotComplete):
            for key in [key for key, (at, _) in self.rows.items() if at < event.time]:
                del self.rows[key]

    def run(self, handle: Any = None, **more: Any) -> None:
        """Run a consumer up to the current time."""
        self.clock.advance(SECOND)
        options: dict[str, Any] = {
            "application": "copy",
            "snapshot": "initial",
            "read": AGAIN,
            "clock": self.clock,
            "checkpoints": self.store,
            "end": self.clock.now(),
            "on_event": self.tell,
            **more,
        }
        connection = ConnectionConfig(self.server.contact_point)
        CdcConsumer(connection, "ks.t", handle or self.handle, **options).run()

    @property
    def table(self) -> dict[Key, int | None]:
        """The rows of the copy without their timestamps."""
        return {key: value for key, (_, value) in self.rows.items()}

    @staticmethod
    def _key(change: Change) -> Key:
        return change.key["p"], change.key["c"]


@pytest.fixture
def copy(server: EmbeddedScylla, clock: ManualClock) -> Copy:
    """An empty copy."""
    return Copy(server, clock)


def table_of(server: EmbeddedScylla) -> dict[Key, int | None]:
    """Return the rows of the table."""
    rows = server.execute("SELECT p, c, v FROM ks.t")
    return {(_number(p), _number(c)): None if v is None else _number(v) for p, c, v in rows}


def _number(cell: bytes | None) -> int:
    return int.from_bytes(cell or b"", "big", signed=True)


def write(server: EmbeddedScylla, *statements: str) -> None:
    """Execute the statements, in which ``{t}`` stands for the table."""
    for statement in statements:
        server.execute(statement.replace("{t}", "ks.t"))


def test_rows_deleted_in_the_lost_span_leave_the_copy(
    copy: Copy, server: EmbeddedScylla, clock: ManualClock
) -> None:
    """Rows older than the new snapshot are removed from the copy.

    Their deletes have expired from the log, so no change reports the deletes.
    """
    write(server, *(f"INSERT INTO {{t}} (p, c, v) VALUES ({p}, 0, {p})" for p in range(9)))
    copy.run()
    assert copy.table == table_of(server)
    [begins, complete] = copy.events
    assert isinstance(begins, SnapshotBegins)
    assert isinstance(complete, SnapshotComplete)
    assert (begins.lost, begins.time) == (None, complete.time)

    write(server, "DELETE FROM {t} WHERE p = 3 AND c = 0", "UPDATE {t} SET v = 0 WHERE p=4 AND c=0")
    lost_from = clock.now()
    clock.advance(3 * HOUR)
    write(server, "INSERT INTO {t} (p, c, v) VALUES (10, 0, 1)")
    copy.events.clear()
    copy.run()
    assert copy.table == table_of(server)
    [begins, complete] = copy.events
    assert isinstance(begins, SnapshotBegins)
    assert begins.lost is not None
    assert begins.lost.start <= lost_from < begins.lost.end <= clock.now() - HOUR * 9 // 10
    assert complete == SnapshotComplete(NAME, begins.time)
    copy.events.clear()
    copy.run()
    assert copy.events == []


def test_a_loss_while_it_runs(copy: Copy, server: EmbeddedScylla, clock: ManualClock) -> None:
    """If changes expire unread, a snapshot starts once the changes in flight are handled."""
    write(server, *(f"INSERT INTO {{t}} (p, c, v) VALUES ({p}, 0, {p})" for p in range(9)))
    copy.run()
    copy.seen.clear()

    def handle(change: Change) -> None:
        if not copy.seen:  # hours pass before the next window is read
            write(server, "DELETE FROM {t} WHERE p = 3 AND c = 0")
            clock.advance(3 * HOUR)
        copy.handle(change)

    write(server, "UPDATE {t} SET v = 0 WHERE p = 4 AND c = 0")
    clock.advance(2 * SECOND)
    copy.run(handle, end=clock.now() + 3 * HOUR)
    assert [type(event) for event in copy.events[2:]] == [SnapshotBegins, SnapshotComplete]
    assert copy.seen == ["update", *["snapshot"] * 8]
    assert copy.table == table_of(server)


def test_a_generation_announced_late_has_expired(
    copy: Copy, server: EmbeddedScylla, clock: ManualClock
) -> None:
    """One new snapshot follows if rows expired before their generation was announced."""
    server.cluster.ring_delay_ms = 0
    copy.run()
    server.hold_publication(0)
    server.join(vnodes=3)
    clock.advance(SECOND)
    server.execute("INSERT INTO ks.t (p, c, v) VALUES (3, 0, 1)")
    for _ in range(8):
        clock.advance(HOUR // 4)
        copy.run()
    server.complete_publication()
    copy.events.clear()
    copy.run()
    assert sum(isinstance(event, SnapshotBegins) for event in copy.events) == 1
    assert copy.table == table_of(server)


def test_a_snapshot_that_is_cut_short_goes_on(
    copy: Copy, server: EmbeddedScylla, clock: ManualClock
) -> None:
    """An interrupted snapshot resumes with its original time, so the copy keeps the rows it has."""
    write(server, *(f"INSERT INTO {{t}} (p, c, v) VALUES ({p}, 0, {p})" for p in range(40)))
    copy.run()
    clock.advance(3 * HOUR)
    write(server, "DELETE FROM {t} WHERE p = 3")
    copy.events.clear()

    def fail(change: Change) -> None:
        copy.handle(change)
        if copy.seen.count("snapshot") >= 55:
            raise RuntimeError("this run ends")

    with pytest.raises(HandlerError):
        copy.run(fail)
    clock.advance(60 * SECOND)
    copy.run(snapshot="none")
    begins, complete = copy.events
    assert isinstance(begins, SnapshotBegins)
    assert complete == SnapshotComplete(NAME, begins.time)
    assert copy.table == table_of(server)


def test_a_snapshot_that_outlasts_the_log_begins_again(
    copy: Copy, server: EmbeddedScylla, clock: ManualClock
) -> None:
    """A snapshot begins again if changes since its start have expired and so would be missing."""
    write(server, *(f"INSERT INTO {{t}} (p, c, v) VALUES ({p}, 0, {p})" for p in range(9)))

    def fail(change: Change) -> None:
        copy.handle(change)
        raise RuntimeError("this run ends")

    with pytest.raises(HandlerError):
        copy.run(fail)
    write(server, "DELETE FROM {t} WHERE p = 3 AND c = 0")
    clock.advance(3 * HOUR)
    copy.run()
    assert [type(event) for event in copy.events] == [
        SnapshotBegins,
        SnapshotBegins,
        SnapshotComplete,
    ]
    assert copy.table == table_of(server)


def test_a_log_created_again(copy: Copy, server: EmbeddedScylla, clock: ManualClock) -> None:
    """If the log was recreated, the consumer takes a new snapshot even if no row has expired."""
    write(server, *(f"INSERT INTO {{t}} (p, c, v) VALUES ({p}, 0, {p})" for p in range(9)))
    copy.run()
    write(server, "DELETE FROM {t} WHERE p = 3 AND c = 0")
    clock.advance(60 * SECOND)
    create_log_again(server)
    copy.run()
    assert [type(event) for event in copy.events[2:]] == [SnapshotBegins, SnapshotComplete]
    assert copy.table == table_of(server)


def test_a_ttl_too_short_for_new_snapshots_is_refused(copy: Copy, server: EmbeddedScylla) -> None:
    """A TTL that is too short for snapshots is rejected.

    With this TTL, each snapshot would make another one necessary.
    """
    second = timedelta(seconds=1)
    read = evolve(AGAIN, confidence_window=30 * second, poll_interval=second)
    server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 60}")
    copy.run(read=read, snapshot="none", application="begun before")
    copy.clock.advance(HOUR)
    for more in ({}, {"snapshot": "none", "application": "begun before"}):
        message = "data_loss is 'resnapshot': the log keeps changes for 60 s, .* to 72 or more"
        with pytest.raises(ConfigurationError, match=message):
            copy.run(read=read, **more)
    server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 72}")
    copy.run(read=read, end=copy.clock.now() + 100 * SECOND)
    assert [type(event) for event in copy.events] == [SnapshotBegins, SnapshotComplete]


def test_going_on_names_what_is_lost(
    copy: Copy, server: EmbeddedScylla, clock: ManualClock
) -> None:
    """With `data_loss="continue"`, an event reports the loss and the run continues."""
    write(server, "INSERT INTO {t} (p, c, v) VALUES (1, 0, 1)")
    copy.run(snapshot="none")
    write(server, "INSERT INTO {t} (p, c, v) VALUES (2, 0, 1)")
    lost_at = clock.now()
    clock.advance(3 * HOUR)
    write(server, "INSERT INTO {t} (p, c, v) VALUES (3, 0, 1)")
    metrics = MemoryMetrics()
    copy.run(snapshot="none", read=evolve(READ, data_loss="continue"), metrics=metrics)
    [event] = copy.events
    assert isinstance(event, RowsLost)
    assert metrics[LOSSES, NAME] == 1
    assert event.table == NAME
    assert lost_at in event.window
    assert set(copy.table) == {(1, 0), (3, 0)}


def test_reported_late_rows_are_counted(
    copy: Copy, server: EmbeddedScylla, clock: ManualClock
) -> None:
    """With `late_rows="report"`, a metric counts the late rows, which are not delivered."""
    metrics, start = MemoryMetrics(), clock.now()
    late = f"INSERT INTO {{t}} (p, c, v) VALUES (2, 0, 1) USING TIMESTAMP {start + SECOND}"

    def handle(change: Change) -> None:
        if not copy.seen:  # the window of the late row is complete
            clock.advance(10 * SECOND)
            write(server, late)
        copy.handle(change)

    clock.advance(60 * SECOND)
    write(server, "INSERT INTO {t} (p, c, v) VALUES (1, 0, 1)")
    read = evolve(READ, late_rows="report", poll_interval="5s")
    end = clock.now() + 120 * SECOND
    with tuned(late_interval=SECOND, longest_window=30 * SECOND):
        copy.run(handle, snapshot="none", start=start, end=end, read=read, metrics=metrics)
    assert copy.table == {(1, 0): 1}
    assert (metrics[LATE_ROWS, NAME], metrics[ROWS, NAME]) == (1, 1)


def test_an_event_that_fails_ends_the_run(copy: Copy, server: EmbeddedScylla) -> None:
    """An error in `on_event` ends the run before the position is saved.

    The next run repeats the event.
    """
    write(server, "INSERT INTO {t} (p, c, v) VALUES (1, 0, 1)")

    def fail(event: ConsumerEvent) -> None:
        copy.events.append(event)
        if len(copy.events) == 2:
            raise RuntimeError("no room")

    with pytest.raises(HandlerError, match=r"on_event of ks\.t failed: RuntimeError"):
        copy.run(on_event=fail)
    copy.run()
    assert [type(event) for event in copy.events] == [SnapshotBegins, *[SnapshotComplete] * 2]

    async def coroutine(event: ConsumerEvent) -> None:
        del event

    with pytest.raises(ConfigurationError, match="on_event"):
        copy.run(application="other", on_event=coroutine)


def test_shards_are_refused(copy: Copy) -> None:
    """With shards, a new snapshot is rejected: one shard cannot determine which rows are lost."""
    with pytest.raises(ConfigurationError, match="shards fall behind one by one"):
        copy.run(shard="1/2")


def test_a_reader_raises(server: EmbeddedScylla, clock: ManualClock, copy: Copy) -> None:
    """A reader cannot take a new snapshot, so it raises an error with the lost time span."""
    write(server, "INSERT INTO {t} (p, c, v) VALUES (1, 0, 1)")
    copy.run()
    kept = copy.store.load(CheckpointName("copy", NAME))
    clock.advance(3 * HOUR)
    connection = ConnectionConfig(server.contact_point)
    with (
        CdcReader(connection, "ks.t", config=AGAIN, clock=clock) as reader,
        pytest.raises(DataLossError, match="expired before they were read") as raised,
    ):
        list(reader.table.follow(kept, clock.now()))
    assert kept is not None
    assert raised.value.start == kept.position < raised.value.end


def test_without_a_mode_the_checkpoint_of_a_snapshot_is_refused(
    copy: Copy, server: EmbeddedScylla
) -> None:
    """An unfinished snapshot is rejected if neither `snapshot` nor `data_loss` allows snapshots."""
    write(server, "INSERT INTO {t} (p, c, v) VALUES (1, 0, 1)")

    def fail(change: Change) -> None:
        raise RuntimeError(f"this run ends at {change}")

    with pytest.raises(HandlerError):
        copy.run(fail)
    with pytest.raises(CheckpointError, match="snapshot is 'none'"):
        copy.run(snapshot="none", read=READ)


def test_a_loop_over_changes(copy: Copy, server: EmbeddedScylla, clock: ManualClock) -> None:
    """An async loop yields the rows of a new snapshot like all other changes."""
    write(server, *(f"INSERT INTO {{t}} (p, c, v) VALUES ({p}, 0, {p})" for p in range(9)))
    copy.run()
    write(server, "DELETE FROM {t} WHERE p = 3 AND c = 0")
    clock.advance(3 * HOUR)

    async def loop() -> None:
        changes = AsyncChanges(
            ConnectionConfig(server.contact_point),
            "ks.t",
            application="copy",
            read=AGAIN,
            clock=clock,
            checkpoints=copy.store,
            end=clock.now(),
            on_event=copy.tell,
        )
        async for change in changes:
            copy.handle(change)

    asyncio.run(loop())
    assert copy.table == table_of(server)


def check_history(seed: int, server: EmbeddedScylla, clock: ManualClock) -> None:
    """Write, pause and fail at random, and compare the copy to the table.

    Pauses may exceed the TTL.
    """
    draw = random.Random(seed)
    server.execute("DROP TABLE ks.t")
    create(server)
    copy = Copy(server, clock)
    failing = draw.choice([0, 0.05, 0.2])

    def handle(change: Change) -> None:
        copy.handle(change)
        if draw.random() < failing:
            raise RuntimeError("this run ends")

    for _ in range(draw.randrange(2, 7)):
        for _ in range(draw.choice([0, 3, 20])):
            write(server, _statement(draw))
            clock.advance(draw.choice([1, SECOND, HOUR // 30]))
        clock.advance(draw.choice([SECOND, HOUR // 2, 2 * HOUR, 5 * HOUR]))
        if draw.random() < 0.2:
            create_log_again(server)
        try:
            copy.run(handle)
        except HandlerError:
            continue
        assert copy.table == table_of(server)
    copy.run()
    assert copy.table == table_of(server)


def _statement(draw: random.Random) -> str:
    p, c, v = draw.randrange(6), draw.randrange(3), draw.randrange(100)
    return draw.choice(
        [
            f"INSERT INTO {{t}} (p, c, v) VALUES ({p}, {c}, {v})",
            f"INSERT INTO {{t}} (p, c, v) VALUES ({p}, {c}, {v})",
            f"DELETE FROM {{t}} WHERE p = {p} AND c = {c}",
            f"DELETE FROM {{t}} WHERE p = {p}",
        ]
    )


@pytest.mark.slow
def test_some_histories(server: EmbeddedScylla, clock: ManualClock) -> None:
    """In random histories, a copy that deletes old rows after each snapshot equals the table."""
    for seed in range(FIRST, FIRST + 3):
        check_history(seed, server, clock)


@pytest.mark.slow
@pytest.mark.timeout(60 + 5 * SEEDS)
def test_every_history(server: EmbeddedScylla, clock: ManualClock) -> None:
    """The copy equals the table in many random histories."""
    for seed in range(FIRST, FIRST + SEEDS):
        try:
            check_history(seed, server, clock)
        except BaseException as error:
            error.add_note(f"SCYLLA_CDC_SEED={seed} SCYLLA_CDC_SEEDS=1")
            raise
