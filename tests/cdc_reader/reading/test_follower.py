"""The rules of following a log, each tested separately. The simulation tests them together."""

from __future__ import annotations

import pickle
import threading
from collections import defaultdict
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve

from cdc_reader._time import BEGINNING
from cdc_reader.changes.grouping import TableChanges
from cdc_reader.config import ReadConfig
from cdc_reader.cql.timeuuid import micros
from cdc_reader.errors import (
    CheckpointError,
    ConfigurationError,
    DataLossError,
    PermissionDeniedError,
    TableNotFoundError,
)
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations, Mark, RowKey
from cdc_reader.reading.deduplication import keys
from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.stream import StreamId
from cdc_reader.testing import ManualClock
from cdc_reader.testing.in_process import RecordedQuery
from tests.cdc_reader.support.followed import EPOCH, SECOND, Followed, cells, last_marks, rows_read
from tests.cdc_reader.support.tuned import tuned, tuning_of_module

SMALL = ReadConfig(
    window=timedelta(seconds=10),
    fetch_size=3,
    retry_deadline=timedelta(seconds=1),
    data_loss="continue",
)
MINUTE = 60 * SECOND

small_chunks = tuning_of_module(streams_per_query=4)


@pytest.fixture
def followed() -> Followed:
    """An empty table that is read in short windows."""
    return Followed(config=SMALL)


def test_windows_adjoin_and_end_a_confidence_window_ago(followed: Followed) -> None:
    """Windows are contiguous and end at least one confidence window ago, even after a sleep."""
    windows = []
    for delivery in followed.follower(EPOCH).follow(EPOCH + 5 * MINUTE):
        assert delivery.window.end <= followed.clock.now() - 30 * SECOND
        windows.append(delivery.window)
    assert windows[0].start == EPOCH
    assert windows[-1].end == EPOCH + 5 * MINUTE
    assert all(first.end == second.start for first, second in pairwise(windows))


class SleeplessClock(ManualClock):
    def sleep(self, micros: int, wake: threading.Event) -> None:
        raise AssertionError((micros, wake))


def test_it_does_not_sleep_while_behind() -> None:
    """A reader that is a day behind catches up without sleeping."""
    followed = Followed(clock=SleeplessClock(EPOCH), config=SMALL)
    followed.clock.advance(24 * 60 * MINUTE)
    horizon = followed.clock.now() - 30 * SECOND
    assert len(followed.follow(EPOCH, horizon)) < 20


class UnsteadyClock(ManualClock):
    def set_back(self, micros: int) -> None:
        self._now -= micros

    def sleep(self, micros: int, wake: threading.Event) -> None:
        assert micros <= 5 * SECOND
        super().sleep(micros, wake)


@pytest.mark.parametrize("delivery", ["settled", pytest.param("eager", marks=pytest.mark.slow)])
def test_a_clock_that_is_set_back_delays_no_read(delivery: str) -> None:
    """A clock that is set back by an hour does not delay the next read."""
    clock = UnsteadyClock(EPOCH)
    followed = Followed(clock=clock, config=SMALL)
    clock.advance(60 * MINUTE)
    reads = iter([lambda: clock.set_back(60 * MINUTE)])

    def set_back_once(asked: RecordedQuery) -> None:
        if "scylla_cdc_log" in asked.query.cql:
            next(reads, lambda: None)()

    followed.before = set_back_once
    start = clock.now() - MINUTE
    settings = {"delivery": delivery, "poll_interval": timedelta(seconds=1)}
    deliveries = followed.follow(start, start + 2 * MINUTE, **settings)
    assert deliveries[-1].window.end == start + 2 * MINUTE
    assert next(reads, None) is None


def test_the_earliest_start_is_what_the_log_still_holds(followed: Followed) -> None:
    """A read from the beginning starts about one TTL ago, because all older rows have expired."""
    followed.clock.advance(400 * 24 * 60 * MINUTE)
    first = next(followed.follower(BEGINNING).follow())
    day_ago = followed.clock.now() - 24 * 60 * MINUTE
    assert day_ago - 2 * MINUTE <= first.window.start <= day_ago


def test_it_waits_for_the_first_generation(followed: Followed) -> None:
    """The first generation may be announced after its start, so the reader waits for it.

    If the position moved past the generation's start, rows would be lost.
    """
    start = EPOCH // 1_000
    announced = "system_distributed.cdc_generation_timestamps"
    followed.execute(f"DELETE FROM {announced} WHERE key = 'timestamps'")
    followed.insert(1, 1)
    looks: list[RecordedQuery] = []

    def announce(asked: RecordedQuery) -> None:
        looks.append(asked)
        if followed.clock.now() >= EPOCH + 5 * MINUTE:
            followed.execute(f"INSERT INTO {announced} (key, time) VALUES ('timestamps', {start})")

    followed.before = announce
    deliveries = followed.follow(EPOCH - MINUTE, EPOCH + MINUTE)
    assert deliveries[0].window == type(deliveries[0].window)(EPOCH - MINUTE, EPOCH)
    assert cells(deliveries, "c") == [(1,)]
    assert len(looks) < 1_000


def test_a_keys_rows_come_in_order_across_a_switch(followed: Followed) -> None:
    """If a window spans two generations, the older generation is read first.

    The rows of each key therefore stay in order.
    """
    followed.server.join(vnodes=3)
    for c in range(60):
        followed.insert(1, c)
        followed.clock.advance(SECOND)
    followed.clock.advance(MINUTE)
    deliveries = followed.follow(EPOCH, EPOCH + MINUTE, window=timedelta(minutes=10))
    assert cells(deliveries, "c") == [(c,) for c in range(60)]
    assert len({stream for (stream,) in cells(deliveries, "cdc$stream_id")}) == 2


@pytest.mark.parametrize("strategy", ["streams", "ranges"])
@pytest.mark.parametrize("resumed", [False, True])
def test_a_generation_announced_late_is_read_from_its_beginning(
    followed: Followed, resumed: bool, strategy: str
) -> None:
    """A generation announced late is read from its beginning.

    No row is lost, repeated or out of order, even if the announcement is very late or the reader
    restarts. With ranges, this holds even if a range includes streams that are not announced yet.
    """
    followed.server.hold_publication(rows=None)
    followed.server.join(vnodes=3)
    for c in range(100):
        followed.insert(1, c)
        followed.clock.advance(SECOND)
    followed.clock.advance(MINUTE)
    deliveries = []
    with tuned(publication_wait=0, strategy=strategy):
        for delivery in followed.follower(EPOCH).follow(EPOCH + 5 * MINUTE):
            deliveries.append(delivery)
            has_switched = len(followed.server.cluster.generations) > 1
            if delivery.window.end < EPOCH + 2 * MINUTE or not has_switched:
                continue
            followed.server.complete_publication()
            if resumed and isinstance(delivery, WindowComplete):
                deliveries += followed.follow(delivery.checkpoint, EPOCH + 5 * MINUTE)
                break
    assert cells(deliveries, "c") == [(c,) for c in range(100)]
    assert any(read.late for read in rows_read(deliveries))


def test_a_generation_announced_late_has_no_rows_before_the_start(followed: Followed) -> None:
    """A generation announced late yields only rows written after the reader's start."""
    followed.server.hold_publication(rows=0)
    followed.server.join(vnodes=3)
    followed.clock.advance(MINUTE)
    for c in range(10):
        followed.insert(1, c)
        followed.clock.advance(SECOND)
    start = followed.clock.now() - 5 * SECOND
    followed.clock.advance(3 * MINUTE)
    deliveries = []
    for delivery in followed.follower(start).follow(followed.clock.now() + MINUTE):
        deliveries.append(delivery)
        followed.server.complete_publication()
    assert any(read.late for read in rows_read(deliveries))
    assert cells(deliveries, "c") == [(c,) for c in range(5, 10)]


def test_no_checkpoint_skips_one_of_several_generations_announced_late(followed: Followed) -> None:
    """A reader can restart without losing rows while it reads generations announced late."""
    followed.server.hold_publication(rows=0)
    for c in range(4):
        followed.server.join(vnodes=2)
        followed.clock.advance(MINUTE)
        followed.insert(1, c)
    followed.clock.advance(MINUTE)
    end = followed.clock.now() - MINUTE // 2
    last = followed.follow(EPOCH, end)[-1]
    assert isinstance(last, WindowComplete)
    followed.server.complete_publication()
    start, deliveries = last.checkpoint, []
    for _ in range(10):
        for delivery in followed.follower(start).follow(end + MINUTE):
            deliveries.append(delivery)
            if isinstance(delivery, WindowComplete):
                start = delivery.checkpoint
                break
    assert sorted(cells(deliveries, "c")) == [(c,) for c in range(4)]


def test_a_half_published_generation_is_waited_for(followed: Followed) -> None:
    """The position stays at the start of a generation that is stored but not yet announced.

    The stored streams show when the generation begins.
    """
    followed.server.hold_publication(rows=2)
    generation = followed.server.join(vnodes=3)
    followed.clock.advance(3 * MINUTE)
    start = generation.timestamp * 1_000
    positions = []
    for delivery in followed.follower(EPOCH).follow(EPOCH + 3 * MINUTE):
        positions.append(delivery.window.end)
        if delivery.window.end == start:
            assert followed.clock.now() > start + MINUTE
            followed.insert(1, 7)
            followed.server.complete_publication()
    assert start in positions


def test_a_stopped_window_is_not_declared_complete(followed: Followed) -> None:
    """An interrupted window is not complete, so the next run delivers its unacknowledged rows."""
    for c in range(10):
        followed.insert(1, c, EPOCH + c)
    followed.clock.advance(MINUTE)
    follower = followed.follower(EPOCH)
    deliveries = []
    for delivery in follower.follow():
        deliveries.append(delivery)
        follower.stop()
    [read] = deliveries
    assert isinstance(read, RowsRead)
    marks = last_marks(read.batch)
    rest = followed.follow(
        Checkpoint(EPOCH, KnownGenerations(EPOCH, (EPOCH,)), marks), EPOCH + SECOND
    )
    assert cells(deliveries + rest, "c") == [(c,) for c in range(10)]


def test_expired_rows_are_reported_once_or_raised(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    """`data_loss` determines whether an expired start is logged once or raises an error."""
    followed.clock.advance(3 * 24 * 60 * MINUTE)
    resumed = Checkpoint(EPOCH, KnownGenerations(EPOCH, (EPOCH,)))
    end = followed.clock.now()
    followed.follow(resumed, end)
    assert caplog.text.count("rows_lost") == 1
    with pytest.raises(DataLossError, match="expired before they were read"):
        followed.follow(resumed, end, data_loss="fail")


@pytest.mark.parametrize("delivery", ["settled", "ordered", "eager"])
def test_a_log_created_again_while_it_is_followed_is_a_loss(
    followed: Followed, caplog: pytest.LogCaptureFixture, delivery: str
) -> None:
    """If the log is recreated while it is followed, the loss is reported once.

    The loss includes a window that may have been read from the new log.
    """
    lost_at = EPOCH + 2 * MINUTE
    followed.clock.advance(lost_at - EPOCH)
    followed.insert(1, 1)
    followed.clock.advance(MINUTE)
    follower = followed.follower(EPOCH + MINUTE, delivery=delivery)
    failing = followed.follower(EPOCH + MINUTE, delivery=delivery, data_loss="fail")
    deliveries = follower.follow(EPOCH + 6 * MINUTE)
    strict = failing.follow(EPOCH + 6 * MINUTE)
    assert next(deliveries).window.end == next(strict).window.end == EPOCH + MINUTE + 10 * SECOND
    followed.execute("ALTER TABLE ks.t WITH cdc = {'enabled': false}")
    followed.execute("DROP TABLE ks.t_scylla_cdc_log")
    followed.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true}")
    followed.insert(1, 3)
    again = followed.clock.now()
    assert cells(list(deliveries), "c") == [(3,)]
    assert caplog.text.count("rows_lost") == 1
    with pytest.raises(DataLossError, match="the log was dropped, and created again") as raised:
        list(strict)
    assert raised.value.start <= lost_at < raised.value.end == again


@pytest.mark.parametrize("delivery", ["settled", "ordered", "eager"])
def test_no_window_of_a_log_created_again_is_complete(followed: Followed, delivery: str) -> None:
    """Once the log has been recreated, no window is reported as complete.

    The next run therefore starts before the lost rows.
    """
    lost_at = EPOCH + MINUTE + 15 * SECOND
    followed.clock.advance(lost_at - EPOCH)
    followed.insert(1, 1)
    followed.clock.advance(3 * MINUTE)
    follower = followed.follower(EPOCH + MINUTE, delivery=delivery, data_loss="fail")
    deliveries = follower.follow(EPOCH + 4 * MINUTE)
    first = next(deliveries)
    assert isinstance(first, WindowComplete)
    assert first.checkpoint.position == EPOCH + MINUTE + 10 * SECOND
    followed.execute("ALTER TABLE ks.t WITH cdc = {'enabled': false}")
    followed.execute("DROP TABLE ks.t_scylla_cdc_log")
    followed.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true}")
    again = followed.clock.now()
    for resumed in (deliveries, followed.follower(first.checkpoint, data_loss="fail").follow()):
        with pytest.raises(DataLossError, match="the log was dropped, and") as raised:
            next(resumed)
        assert (raised.value.start, raised.value.end) == (first.checkpoint.position, again)


def test_a_log_created_again_in_the_last_pass_is_a_loss(followed: Followed) -> None:
    """If the log is recreated during the last pass, the loss is still reported."""
    followed.clock.advance(2 * MINUTE)
    followed.insert(1, 1)
    followed.clock.advance(MINUTE)
    deliveries = followed.follower(EPOCH + MINUTE, data_loss="fail").follow(EPOCH + 2 * MINUTE)
    next(deliveries)
    followed.execute("ALTER TABLE ks.t WITH cdc = {'enabled': false}")
    followed.execute("DROP TABLE ks.t_scylla_cdc_log")
    followed.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true}")
    with pytest.raises(DataLossError, match="the log was dropped, and created again"):
        list(deliveries)


def test_a_table_recreated_while_it_is_followed_is_refused(followed: Followed) -> None:
    """If the table is recreated while it is followed, an error is raised and no new row is read."""
    followed.insert(1, 1)
    followed.clock.advance(MINUTE)
    deliveries = followed.follower(EPOCH).follow()
    assert cells([next(deliveries)], "c") == [(1,)]
    followed.execute("DROP TABLE ks.t")
    followed.execute(
        "CREATE TABLE ks.t (p int, c int, v int, PRIMARY KEY (p, c)) WITH cdc = {'enabled': true}"
    )
    followed.insert(1, 2)
    rest: list[Delivery] = []
    with pytest.raises(CheckpointError, match=r"ks\.t was dropped and created again"):
        rest.extend(deliveries)
    assert cells(rest, "c") == []


def test_a_column_added_appears_and_a_dropped_one_is_absent(followed: Followed) -> None:
    """If a column is added and another dropped during a read, later rows reflect both changes."""
    followed.insert(1, 1)
    followed.clock.advance(MINUTE)
    follower = followed.follower(EPOCH)
    deliveries = []
    for delivery in follower.follow(EPOCH + 10 * MINUTE):
        deliveries.append(delivery)
        if isinstance(delivery, RowsRead) and len(cells(deliveries, "c")) == 1:
            followed.execute("ALTER TABLE ks.t ADD w int")
            followed.execute("ALTER TABLE ks.t DROP v")
            followed.execute("INSERT INTO ks.t (p, c, w) VALUES (1, 2, 5)")
    rows = [read.batch.to_pylist()[0] for read in rows_read(deliveries)]
    assert ("v" in rows[0], "w" in rows[0]) == (True, False)
    assert ("v" in rows[1], rows[1]["w"]) == (False, 5)
    assert len(rows) == 2


@pytest.mark.parametrize("late", [False, True])
def test_a_row_read_at_once_has_the_columns_it_was_written_with(
    followed: Followed, late: bool
) -> None:
    """Rows include the values of a column that was added after the schema was read."""
    followed.clock.advance(20 * MINUTE)
    altered: list[RecordedQuery] = []

    def looks_back(asked: RecordedQuery) -> bool:
        start: Any = asked.query.values[-2]
        return micros(start.bytes) < followed.clock.now() - 5 * MINUTE

    def add(asked: RecordedQuery) -> None:
        if "cdc$time" in asked.query.cql and not altered and looks_back(asked) == late:
            altered.append(asked)
            followed.execute("ALTER TABLE ks.t ADD w int")
            at = followed.clock.now() - late * 5 * MINUTE
            followed.execute(f"INSERT INTO ks.t (p, c, w) VALUES (1, 2, 5) USING TIMESTAMP {at}")

    follower = followed.follower(
        followed.clock.now() - 10 * MINUTE,
        delivery="settled" if late else "eager",
        late_rows="deliver" if late else "ignore",
    )
    deliveries = []
    for delivery in follower.follow(followed.clock.now() + 3 * MINUTE):
        deliveries.append(delivery)
        if delivery.window.end > followed.clock.now() - MINUTE and not altered:
            followed.before = add
    assert cells(deliveries, "c", "w") == [(2, 5)]


def test_a_column_dropped_within_a_window_repeats_no_row(followed: Followed) -> None:
    """If a column is dropped while a window is read, no row is delivered twice."""
    for c in range(20):
        followed.insert(c % 4, c, EPOCH + c)
    followed.clock.advance(MINUTE)
    deliveries = []
    for delivery in followed.follower(EPOCH).follow(EPOCH + SECOND):
        deliveries.append(delivery)
        if len(deliveries) == 2:
            followed.execute("ALTER TABLE ks.t DROP v")
    assert sorted(cells(deliveries, "c")) == [(c,) for c in range(20)]


@pytest.mark.parametrize("delivery", ["settled", "ordered", "eager"])
@pytest.mark.parametrize("change", ["ADD w int", "DROP v"])
def test_a_column_changed_within_a_record_splits_no_change(
    followed: Followed, change: str, delivery: str
) -> None:
    """A record that spans pages is delivered whole, with one schema, even if a column changes."""
    rows = (f"INSERT INTO ks.t (p, c, v) VALUES (1, {c}, {c})" for c in range(8))
    followed.execute(f"BEGIN BATCH {'; '.join(rows)}; APPLY BATCH")

    def alter(asked: RecordedQuery) -> None:
        if asked.paging_state is not None and "cdc$time" in asked.query.cql:
            followed.before = lambda _asked: None
            followed.execute(f"ALTER TABLE ks.t {change}")

    followed.before = alter
    followed.clock.advance(MINUTE)
    follower = followed.follower(EPOCH, fetch_size=3, delivery=delivery)
    deliveries = list(follower.follow(EPOCH + SECOND))
    assert followed.before is not alter
    assert cells(deliveries, "c") == [(c,) for c in range(8)]
    changes = TableChanges()
    found = [change for each in deliveries for change in changes.feed(each)]
    assert [change.complete for change in found] == [True] * 8
    assert len({id(read.schema) for read in rows_read(deliveries)}) == 1


@pytest.mark.parametrize("error", ["dropped", "unauthorised"])
def test_permanent_errors_are_raised_at_once(followed: Followed, error: str) -> None:
    """Permanent errors, such as a dropped table or a revoked permission, are raised at once."""
    followed.clock.advance(MINUTE)
    follower = followed.follower(EPOCH)
    deliveries = follower.follow()
    next(deliveries)
    kind: type[Exception] = TableNotFoundError
    message = "it has been dropped"
    if error == "dropped":
        followed.execute("DROP TABLE ks.t")
    else:
        kind, message = PermissionDeniedError, "no SELECT"
        followed.before = _refuse
    asked, now = len(followed.asked), followed.clock.now()
    with pytest.raises(kind, match=message):
        list(deliveries)
    assert len(followed.asked) - asked < 20
    assert followed.clock.now() - now < 20 * SECOND


def _refuse(asked: RecordedQuery) -> None:
    if "scylla_cdc_log" in asked.query.cql:
        raise PermissionDeniedError("no SELECT for the role")


def test_eager_delivery_yields_rows_at_once_and_marks_late_ones(
    followed: Followed,
) -> None:
    """Eager delivery yields each row at once and only once, although it rereads time spans."""
    follower = followed.follower(EPOCH, delivery="eager", poll_interval=timedelta(seconds=1))
    wanted = [(1, 30), (2, 40), (3, 35), (4, 50)]
    deliveries = []
    followed.clock.advance(50 * SECOND)
    for delivery in follower.follow(EPOCH + 2 * MINUTE):
        deliveries.append(delivery)
        if isinstance(delivery, RowsRead) and followed.clock.now() < EPOCH + 70 * SECOND:
            assert delivery.window.end > followed.clock.now()
        if wanted and followed.clock.now() >= EPOCH + 50 * SECOND:
            c, at = wanted.pop(0)
            followed.insert(1, c, EPOCH + at * SECOND)
    assert cells(deliveries, "c") == [(1,), (2,), (3,), (4,)]
    late = [cells([read], "c") for read in rows_read(deliveries) if read.late]
    assert late == [[(3,)]]


@pytest.mark.parametrize("delivery", ["settled", "eager"])
def test_rows_written_long_in_the_past_are_found(followed: Followed, delivery: str) -> None:
    """A row whose write time is minutes old when it arrives is delivered once and marked as late.

    This holds even if the row arrives between two runs.
    """
    modes: dict[str, Any] = {
        "delivery": delivery,
        "poll_interval": timedelta(seconds=5),
        "late_rows": "deliver",
    }
    follower = followed.follower(EPOCH, **modes)
    deliveries = []
    followed.clock.advance(5 * MINUTE)
    written: set[int] = set()
    for got in follower.follow():
        deliveries.append(got)
        minute = (followed.clock.now() - EPOCH) // MINUTE
        if isinstance(got, RowsRead):
            continue
        if minute not in written and minute < 10:
            written.add(minute)
            followed.insert(1, minute)
            followed.insert(1, 100 + minute, followed.clock.now() - 3 * MINUTE)
        state = got.checkpoint.late
        scanned = state and state.searched_at
        if minute >= 10 and scanned and scanned > EPOCH + 10 * MINUTE - 10 * SECOND:
            break
    last = deliveries[-1]
    assert isinstance(last, WindowComplete)
    at = evolve(last.checkpoint, marks=marks_of(deliveries))
    followed.clock.advance(SECOND)
    followed.insert(1, 999, followed.clock.now() - 4 * MINUTE)
    followed.clock.advance(SECOND)
    deliveries += followed.follower(at, **modes).follow(followed.clock.now() + 3 * MINUTE)
    found = sorted(c for (c,) in cells(deliveries, "c"))
    assert found == sorted([*written, *(100 + minute for minute in written), 999])
    late = {c for (c,) in cells([d for d in deliveries if d.late], "c")}
    assert late - {105} == {*(100 + minute for minute in written if minute > 5), 999}


def test_late_rows_that_arrive_while_the_reader_is_stopped_are_found(followed: Followed) -> None:
    """A row that arrives behind the position is found even if the reader is stopped for hours.

    By the time the reader has caught up, the position has moved on by more than `late_horizon`.
    """
    modes: dict[str, Any] = {"late_rows": "deliver", "late_horizon": timedelta(hours=1)}
    followed.insert(1, 1)
    followed.clock.advance(20 * MINUTE)
    deliveries = followed.follow(EPOCH, EPOCH + 19 * MINUTE, **modes)
    last = deliveries[-1]
    assert isinstance(last, WindowComplete)
    followed.clock.advance(MINUTE)
    followed.insert(1, 2, EPOCH + 18 * MINUTE)
    followed.clock.advance(3 * 60 * MINUTE)
    followed.insert(1, 3)
    followed.clock.advance(MINUTE)
    rest = followed.follow(last.checkpoint, followed.clock.now() - MINUTE // 2, **modes)
    assert sorted(cells(rest, "c")) == [(2,), (3,)]
    assert cells([read for read in rest if read.late], "c") == [(2,)]


def test_each_checkpoint_resumes_where_its_window_ended(followed: Followed) -> None:
    """A read from a checkpoint resumes where the window ended, even if the checkpoint was pickled.

    The marks of the initial checkpoint still apply, so the rows that they list are not delivered.
    """
    for c in range(60):
        followed.insert(c % 3, c)
        followed.clock.advance(SECOND)
    followed.clock.advance(MINUTE)
    end, short = EPOCH + MINUTE, timedelta(seconds=5)
    read = [each for each in followed.follow(EPOCH, end, window=short) if 10 <= first_c(each) < 40]
    deliveries = followed.follow(Checkpoint(EPOCH, marks=marks_of(read)), end, window=short)
    wanted = sorted({(c,) for c in range(60)} - set(cells(read, "c")))
    assert 20 <= len(wanted) < 60
    for count, each in enumerate(deliveries, start=1):
        if isinstance(each, WindowComplete):
            at = pickle.loads(pickle.dumps(each.checkpoint))
            rest = followed.follow(at, end, window=short)
            assert sorted(cells(deliveries[:count], "c") + cells(rest, "c")) == wanted


def first_c(delivery: Delivery) -> int:
    """Return `c` of the first row, or -1 if there is no row."""
    return next((c for (c,) in cells([delivery], "c")), -1)


def marks_of(deliveries: list[Delivery]) -> dict[StreamId, Mark]:
    """Return marks that list each delivered row."""
    found: dict[StreamId, set[RowKey]] = defaultdict(set)
    for delivery in rows_read(deliveries):
        for stream, key in keys(delivery.batch):
            found[stream].add(key)
    return {stream: Mark(rows=frozenset(rows)) for stream, rows in found.items()}


def test_a_search_for_late_rows_requires_a_ttl() -> None:
    """A search for late rows requires a TTL, because arrival times are computed from it."""
    followed = Followed(options="'enabled': true, 'ttl': 0")
    with pytest.raises(ConfigurationError, match=r"late_rows is 'report'.*keeps rows forever"):
        followed.follow(EPOCH, EPOCH + MINUTE, late_rows="report")


@pytest.mark.parametrize("strategy", ["streams", "ranges", "auto"])
@pytest.mark.parametrize("count", [1, 3])
def test_shards_together_have_each_row_once(followed: Followed, strategy: str, count: int) -> None:
    """Together, the shards read each row once with both strategies, across two generations."""
    followed.server.join(vnodes=3)
    for c in range(90):
        followed.insert(c % 30, c)
        followed.clock.advance(SECOND)
    followed.clock.advance(MINUTE)
    found = []
    for number in range(1, count + 1):
        follower = followed.follower(EPOCH, Shard(number, count))
        with tuned(strategy=strategy):
            found += cells(list(follower.follow(EPOCH + 2 * MINUTE)), "c")
    assert sorted(found) == [(c,) for c in range(90)]


def test_a_generation_without_streams_is_skipped_with_a_warning(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    """A generation without streams is skipped with a warning, because it cannot have rows."""
    followed.server.add_empty_generation()
    followed.clock.advance(5 * MINUTE)
    followed.follow(EPOCH, EPOCH + 3 * MINUTE)
    assert caplog.text.count("generation_without_streams") == 1


def test_late_changes_are_marked(followed: Followed) -> None:
    """The flag that marks late changes survives pickling and is ignored in comparisons."""
    followed.insert(1, 2, EPOCH + 2)
    followed.insert(1, 1, EPOCH + 1)
    followed.clock.advance(MINUTE)
    [first, second] = followed.follow(EPOCH, EPOCH + SECOND)[:2]
    assert isinstance(first, RowsRead)
    changes = TableChanges()
    found = changes.feed(evolve(first, late=True)) + changes.feed(first) + changes.feed(second)
    assert [change.late for change in found] == [True, True, False, False]
    assert [change.late for change in pickle.loads(pickle.dumps(found))] == [
        True,
        True,
        False,
        False,
    ]
    assert found[:2] == found[2:]
    assert repr(found[0]).replace(" late ", " ") == repr(found[2])


def test_generations_are_refreshed_less_often_than_rows_are_polled(followed: Followed) -> None:
    """Each poll of an idle table sends one log query per chunk. Other queries are few and small."""
    followed.clock.advance(MINUTE)
    start = followed.clock.now()
    eager = followed.follower(start, delivery="eager", poll_interval=timedelta(milliseconds=40))
    list(eager.follow(start + 10 * SECOND))
    log = [asked for asked in followed.asked if "scylla_cdc_log" in asked.query.cql]
    seconds = (followed.clock.now() - start) / SECOND
    polls = seconds / 0.320 + seconds / 5  # idle chunks wait for eight intervals
    assert 0.93 * polls <= len(log) / 2 <= polls + 1  # the table has two chunks
    assert len(followed.asked) - len(log) < 12 * (seconds + 2)


@pytest.mark.parametrize("delivery", ["settled", "ordered", "eager"])
def test_an_end_before_the_position_moves_nothing(followed: Followed, delivery: str) -> None:
    """An end before the position does not move the position back, so no row is repeated."""
    followed.clock.advance(10 * MINUTE)
    position = followed.clock.now() - MINUTE
    follower = followed.follower(position, delivery=delivery)
    found = list(follower.follow(position - 5 * MINUTE))
    assert all(read.position >= position for read in found if isinstance(read, WindowComplete))


@pytest.mark.parametrize("is_far", [False, True])
def test_a_start_in_the_future_is_told(
    followed: Followed, caplog: pytest.LogCaptureFixture, *, is_far: bool
) -> None:
    """A start in the future causes a warning, because the start or a clock is probably wrong."""
    start = followed.clock.now() + (60 * MINUTE if is_far else SECOND)
    list(followed.follower(start).follow(start))
    told = [line for line in caplog.messages if "start_in_the_future" in line]
    assert len(told) == is_far
