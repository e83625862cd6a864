"""A consumer that resumes after the table or the TTL of its log has changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from cdc_reader._time import format_timestamp
from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.checkpoints.store import CheckpointName, Owner
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.consumer import CdcConsumer
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError, DataLossError
from cdc_reader.reading.follower import Follower
from cdc_reader.testing import EmbeddedScylla, ManualClock
from tests.cdc_reader.consumer.conftest import READ
from tests.cdc_reader.support.ticking import Ticking

if TYPE_CHECKING:
    from cdc_reader.checkpoints.store import LeasingStore

SECOND = 1_000_000
HOUR = 3_600 * SECOND
STRICT = evolve(READ, data_loss="fail")
NAME = CheckpointName("app", TableName("ks", "t"))


@pytest.fixture
def store() -> LeasingStore:
    """A checkpoint store; all stores keep the same values (`checkpoints/test_stores.py`)."""
    return MemoryCheckpoints()


@pytest.fixture
def run(
    server: EmbeddedScylla, clock: ManualClock, store: LeasingStore
) -> Callable[..., list[int]]:
    """A function that runs a consumer up to now, and returns the keys of its changes."""

    def run(read: ReadConfig = STRICT) -> list[int]:
        seen: list[int] = []

        def handle(change: Change) -> None:
            seen.append(change.key["p"])

        clock.advance(SECOND)
        options: dict[str, Any] = {"checkpoints": store, "clock": clock, "end": clock.now()}
        connection = ConnectionConfig(server.contact_point)
        CdcConsumer(connection, ["ks.t"], handle, application="app", read=read, **options).run()
        return seen

    return run


def create(server: EmbeddedScylla, ttl: int) -> None:
    """Create the table. Its log keeps rows for `ttl` seconds."""
    server.execute(
        f"CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {{'enabled': true, 'ttl': {ttl}}}"
    )


def alter(server: EmbeddedScylla, ttl: int) -> None:
    """Set the log's TTL for rows written from now on."""
    server.execute(f"ALTER TABLE ks.t WITH cdc = {{'enabled': true, 'ttl': {ttl}}}")


def insert(server: EmbeddedScylla, p: int) -> None:
    """Insert a row at the current time."""
    server.execute(f"INSERT INTO ks.t (p) VALUES ({p})")


def test_raising_the_ttl_does_not_hide_a_loss(
    server: EmbeddedScylla, clock: ManualClock, run: Callable[[], list[int]]
) -> None:
    """Raising the TTL does not hide a loss of rows, because older rows keep the old TTL."""
    create(server, ttl=3_600)
    insert(server, 1)
    assert run() == [1]
    insert(server, 2)
    clock.advance(2 * HOUR)
    alter(server, ttl=86_400)
    clock.advance(HOUR)
    with pytest.raises(DataLossError, match=r"rows of ks\.t written in .* expired before"):
        run()


def test_lowering_the_ttl_is_no_loss(
    server: EmbeddedScylla, clock: ManualClock, run: Callable[[], list[int]]
) -> None:
    """Lowering the TTL does not count as a loss, because older rows keep the old TTL."""
    create(server, ttl=86_400)
    insert(server, 1)
    assert run() == [1]
    insert(server, 2)
    clock.advance(2 * HOUR)
    alter(server, ttl=600)
    insert(server, 3)
    assert run() == [2, 3]
    insert(server, 4)
    clock.advance(HOUR)
    with pytest.raises(DataLossError, match="expired before they were read"):
        run()


def test_the_history_of_the_ttl_is_kept(
    server: EmbeddedScylla,
    clock: ManualClock,
    store: LeasingStore,
    run: Callable[[], list[int]],
) -> None:
    """Earlier TTLs are saved too: generations announced late have rows with these TTLs."""
    create(server, ttl=3_600)
    run()
    clock.advance(HOUR // 2)
    alter(server, ttl=7_200)
    since = clock.now()
    run()
    kept = store.load(NAME)
    assert kept is not None
    assert kept.table_id is not None
    assert [seconds for _, seconds in kept.ttls.changes] == [3_600, 7_200]
    assert kept.ttls.changes[1][0] == since


def test_a_table_created_again_is_refused(
    server: EmbeddedScylla,
    store: LeasingStore,
    run: Callable[[], list[int]],
) -> None:
    """The checkpoint of a dropped table is rejected for the new table, and stays unchanged."""
    create(server, ttl=3_600)
    insert(server, 1)
    assert run() == [1]
    kept = store.load(NAME)
    server.execute("DROP TABLE ks.t")
    create(server, ttl=3_600)
    insert(server, 2)
    with pytest.raises(CheckpointError, match=r"ks\.t was dropped and created again.*start over"):
        run()
    assert store.load(NAME) == kept


def create_log_again(server: EmbeddedScylla) -> None:
    """Recreate the table's log, as turning CDC off and on did before ScyllaDB 5.1."""
    server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': false}")
    server.execute("DROP TABLE IF EXISTS ks.t_scylla_cdc_log")
    alter(server, ttl=3_600)


def test_a_log_created_again_is_a_loss(
    server: EmbeddedScylla,
    clock: ManualClock,
    store: LeasingStore,
    run: Callable[..., list[int]],
) -> None:
    """Rows between the position and the new log's creation are lost.

    The error names the span of the lost rows.
    """
    create(server, ttl=3_600)
    insert(server, 1)
    assert run() == [1]
    kept = store.load(NAME)
    insert(server, 2)
    clock.advance(60 * SECOND)
    create_log_again(server)
    again = clock.now()
    insert(server, 3)
    for _ in range(2):
        created = format_timestamp(again)
        with pytest.raises(DataLossError, match=f"log was dropped, and created again at {created}"):
            run()
        assert store.load(NAME) == kept
    with pytest.raises(DataLossError) as raised:
        run()
    assert kept is not None
    assert (raised.value.start, raised.value.end) == (kept.position, again)
    assert run(evolve(STRICT, data_loss="continue")) == [3]
    insert(server, 4)
    assert run() == [4]


def test_a_log_created_again_by_a_node_whose_clock_is_behind(
    server: EmbeddedScylla,
    clock: ManualClock,
    store: LeasingStore,
    run: Callable[..., list[int]],
) -> None:
    """A recreated log counts as a loss, even if its id shows a time before the position.

    The clock of the node that created the log is behind.
    """
    clock.advance(2 * HOUR)
    create(server, ttl=3_600)
    insert(server, 1)
    assert run() == [1]
    kept = store.load(NAME)
    assert kept is not None
    insert(server, 2)
    clock.advance(60 * SECOND)
    server.skew_clock(server.nodes[0], -HOUR)
    create_log_again(server)
    server.skew_clock(server.nodes[0], 0)
    insert(server, 3)
    for _ in range(2):
        with pytest.raises(DataLossError, match="log was dropped, and created again at") as raised:
            run()
        assert (raised.value.start, raised.value.end) == (kept.position, kept.position + 1)
    assert run(evolve(STRICT, data_loss="continue")) == [3]
    insert(server, 4)
    assert run() == [4]


def test_a_log_created_again_before_any_row_was_read(
    server: EmbeddedScylla, clock: ManualClock, store: LeasingStore, run: Callable[[], list[int]]
) -> None:
    """A recreated log is noticed even before the first row is read.

    The start is saved with the id of the log.
    """
    create(server, ttl=3_600)
    clock.advance(HOUR)
    killed(server, clock, store, "-10m")
    insert(server, 1)
    clock.advance(SECOND)
    create_log_again(server)
    with pytest.raises(DataLossError, match="the log was dropped, and created again"):
        run()


def test_an_imported_checkpoint_learns_its_table_and_log(
    server: EmbeddedScylla, store: LeasingStore, run: Callable[[], list[int]]
) -> None:
    """A checkpoint without the ids of the table and the log is assumed to belong to them."""
    create(server, ttl=3_600)
    run()
    kept = store.load(NAME)
    assert kept is not None
    unnamed = evolve(kept, table_id=None, ttls=evolve(kept.ttls, logs=()))
    owner = Owner.of_this_process(0)
    assert store.acquire(NAME, owner, timedelta(seconds=1)) == owner
    assert store.save_as(owner, NAME, unnamed)
    store.release(NAME, owner)
    create_log_again(server)
    insert(server, 1)
    assert run() == [1]
    learnt = store.load(NAME)
    assert learnt is not None
    assert learnt.table_id == kept.table_id
    assert learnt.ttls.logs not in ((), kept.ttls.logs)


def killed(server: EmbeddedScylla, clock: ManualClock, store: LeasingStore, start: str) -> None:
    """Run a consumer that ends before its first window is complete, as if it were killed."""
    connection = ConnectionConfig(server.contact_point)
    consumer = CdcConsumer(
        connection,
        ["ks.t"],
        lambda _change: None,
        application="app",
        checkpoints=store,
        clock=clock,
        start=start,
        read=STRICT,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Follower, "follow", lambda _self, _end: iter(()))
        consumer.run()


@pytest.mark.parametrize("start", ["earliest", "-10m", "now"])
def test_a_start_that_was_never_read_on_expires(
    server: EmbeddedScylla,
    clock: ManualClock,
    store: LeasingStore,
    run: Callable[[], list[int]],
    start: str,
) -> None:
    """A start saved by a run that read nothing is checked with the TTL at the time of saving."""
    create(server, ttl=3_600)
    killed(server, clock, store, start)
    insert(server, 1)
    clock.advance(2 * HOUR)
    alter(server, ttl=86_400)
    with pytest.raises(DataLossError, match=r"rows of ks\.t written in .* expired before"):
        run()


@pytest.mark.parametrize("late", [0, 59, 61])
def test_a_start_that_was_never_read_on_begins_to_expire(
    server: EmbeddedScylla,
    clock: ManualClock,
    store: LeasingStore,
    run: Callable[[], list[int]],
    late: int,
) -> None:
    """Rows written after a saved start are reported as lost if they expire unread."""
    create(server, ttl=3_600)
    killed(server, clock, store, "now")
    insert(server, 1)
    clock.advance(HOUR + late * SECOND)
    with pytest.raises(DataLossError, match=r"rows of ks\.t written in .* expired before"):
        run()


def test_a_new_consumer_of_an_old_log_loses_nothing(
    server: EmbeddedScylla, clock: ManualClock, store: LeasingStore
) -> None:
    """A new consumer of an old log reports no loss, even if rows expire during the run."""
    create(server, ttl=3_600)
    clock.advance(2 * HOUR)
    insert(server, 1)
    clock.advance(SECOND)
    seen: list[int] = []
    CdcConsumer(
        ConnectionConfig(server.contact_point),
        ["ks.t"],
        lambda change: seen.append(change.key["p"]),
        application="app",
        read=STRICT,
        checkpoints=store,
        clock=Ticking(clock, SECOND // 100),
        end=clock.now(),
    ).run()
    assert seen == [1]


@pytest.mark.parametrize("start", ["earliest", "-10m", "now"])
def test_a_saved_start_belongs_to_one_table(
    server: EmbeddedScylla,
    clock: ManualClock,
    store: LeasingStore,
    run: Callable[[], list[int]],
    start: str,
) -> None:
    """A saved start of a dropped table is rejected for a new table with the same name."""
    create(server, ttl=3_600)
    killed(server, clock, store, start)
    server.execute("DROP TABLE ks.t")
    create(server, ttl=3_600)
    with pytest.raises(CheckpointError, match=r"ks\.t was dropped and created again"):
        run()


@pytest.mark.parametrize("start", ["earliest", "-7d"])
def test_a_start_before_the_table_has_lost_nothing(
    server: EmbeddedScylla,
    clock: ManualClock,
    store: LeasingStore,
    run: Callable[[], list[int]],
    start: str,
) -> None:
    """A start before the table existed causes no loss if the log is younger than its TTL."""
    create(server, ttl=3_600)
    killed(server, clock, store, start)
    insert(server, 1)
    clock.advance(HOUR // 2)
    assert run() == [1]


def test_a_start_whose_rows_have_expired_is_refused_and_not_kept(
    server: EmbeddedScylla, clock: ManualClock, store: LeasingStore, run: Callable[[], list[int]]
) -> None:
    """A start whose rows have expired is rejected and not saved.

    The next run can use another start.
    """
    create(server, ttl=3_600)
    insert(server, 1)
    clock.advance(3 * HOUR)
    insert(server, 2)
    with pytest.raises(DataLossError, match=r"expected a start whose rows do not expire"):
        killed(server, clock, store, "-2h")
    assert store.load(NAME) is None
    assert run() == [2]
