"""Strays: rows in a stream of a generation that was not in force when they were written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from cdc_reader.changes.records import ChangeRows
from cdc_reader.checkpoints.acknowledgement import Acknowledgements, InFlightRows
from cdc_reader.cluster.log import CdcTable
from cdc_reader.config import ReadConfig
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete
from cdc_reader.reading.snapshot import begin_snapshot
from cdc_reader.streams.shard import Shard
from cdc_reader.testing.in_process import RecordedQuery
from tests.cdc_reader.support.followed import EPOCH, SECOND, Followed, cells, rows_read
from tests.cdc_reader.support.tuned import tuned

MINUTE = 60 * SECOND
_CONFIG = ReadConfig(
    confidence_window=timedelta(seconds=10),
    late_rows="deliver",
)

pytestmark = pytest.mark.needs("faults", "topology")

DELIVERIES = ["settled", pytest.param("eager", marks=pytest.mark.slow)]
STRATEGIES = [
    *(pytest.param(each, marks=pytest.mark.slow) for each in ("streams", "ranges")),
    "auto",
]


@pytest.fixture
def one_by_one() -> Iterator[None]:
    """Let readers send one query at a time, with one stream."""
    with tuned(streams_per_query=1, in_flight=1):
        yield


@pytest.fixture
def impatient() -> Iterator[None]:
    """Let readers wait for no generation."""
    with tuned(publication_wait=0):
        yield


@pytest.fixture
def followed() -> Followed:
    """A table whose generation changes 25 s after the epoch."""
    followed = Followed(config=_CONFIG)
    followed.server.join(vnodes=3)
    return followed


def astray(followed: Followed, c: int, at: int, *, by: int, twice: bool = False) -> None:
    """Write a row to the generation `by` places after the one in force.

    If `twice` is True, the row is also written to the right generation.
    """
    followed.server.misplacing.by, followed.server.misplacing.twice = by, twice
    followed.insert(c, c, at)
    followed.server.misplacing.by = 0


def switch(followed: Followed) -> int:
    """Return the start of the newest generation."""
    return followed.server.cluster.generations[-1].start_us


def log_row(followed: Followed, c: int, at: int, stream: bytes) -> None:
    """Insert a row written at `at` into a stream. The same row in another stream is its twin."""
    followed.execute(
        'INSERT INTO ks.t_scylla_cdc_log ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", '
        f'"cdc$operation", "cdc$end_of_batch", p, c) VALUES (0x{stream.hex()}, '
        f"{timeuuid.make(at, bytes(8))}, 0, 2, true, 1, {c}) USING TTL 86400"
    )


def write_around(followed: Followed, *, twice: bool) -> list[tuple[int]]:
    """Write rows around a change of generation, and return them. Every second row is a stray."""
    at = switch(followed)
    followed.clock.advance(at - 3 * SECOND - followed.clock.now())
    for c in range(60):
        written = followed.clock.now()
        if c % 2:
            astray(followed, c, written, by=1 if written < at else -1, twice=twice)
        else:
            followed.insert(c, c, written)
        followed.clock.advance(SECOND // 10)
    return [(c,) for c in range(60)]


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("twice", [False, True])
def test_strays_are_delivered_once(
    followed: Followed, delivery: str, strategy: str, twice: bool
) -> None:
    """Each row is delivered once. A stray is delivered only if it has no twin."""
    written = write_around(followed, twice=twice)
    with tuned(strategy=strategy):
        found = followed.follow(EPOCH, EPOCH + 5 * MINUTE, delivery=delivery, poll_interval="2s")
    assert sorted(cells(found, "c")) == written
    assert any(read.late for read in rows_read(found)) == (not twice)


@pytest.mark.parametrize("twice", [False, True])
def test_strays_are_delivered_by_one_shard(followed: Followed, twice: bool) -> None:
    """Only one shard delivers a stray, even if its twin's stream belongs to another shard."""
    written = write_around(followed, twice=twice)
    followed.clock.advance(MINUTE)
    found = [
        row
        for number in range(1, 4)
        for row in cells(
            list(followed.follower(EPOCH, Shard(number, 3)).follow(EPOCH + MINUTE)), "c"
        )
    ]
    assert sorted(found) == written


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_twin_that_arrives_after_its_stray_was_delivered_is_left_out(
    followed: Followed, delivery: str, restarts: bool
) -> None:
    """If a stray has been delivered, its twin is skipped when it arrives, even after a restart."""
    before, after = (g.ranges[0].streams[0] for g in followed.server.cluster.generations)
    followed.clock.advance(switch(followed) + SECOND - followed.clock.now())
    written = followed.clock.now()
    log_row(followed, 1, written, before)
    deliveries: list[Delivery] = []
    reading = followed.follower(EPOCH, delivery=delivery).follow(written + 5 * MINUTE)
    is_logged = False
    for got in reading:
        deliveries.append(got)
        if isinstance(got, RowsRead) or is_logged or got.position < written + 2 * MINUTE:
            continue
        is_logged = True
        log_row(followed, 1, written, after)
        if restarts:
            reading = followed.follower(got.checkpoint, delivery=delivery).follow(
                written + 5 * MINUTE
            )
            deliveries += reading
            break
    assert is_logged
    assert cells(deliveries, "c") == [(1,)]


@pytest.mark.usefixtures("one_by_one")
def test_a_twin_that_arrives_while_its_window_is_read_is_delivered(followed: Followed) -> None:
    """If the twin arrives after its stream was read, and before the strays, a search finds it."""
    before, after = (g.ranges[0].streams[0] for g in followed.server.cluster.generations)
    followed.clock.advance(switch(followed) + SECOND - followed.clock.now())
    written = followed.clock.now()
    log_row(followed, 1, written, before)
    twins = iter([after])

    def arrive(asked: RecordedQuery) -> None:
        values: tuple[Any, ...] = asked.query.values
        if "IN ? AND" not in asked.query.cql or before not in values[0]:
            return
        if timeuuid.micros(values[2].bytes) > written:
            for stream in twins:
                log_row(followed, 1, written, stream)

    followed.before = arrive
    found = followed.follow(EPOCH, written + 5 * MINUTE)
    assert next(twins, None) is None
    assert cells(found, "c") == [(1,)]


@pytest.mark.usefixtures("one_by_one")
def test_a_slow_search_marks_no_stray_as_late() -> None:
    """A slow search for late rows does not deliver a stray again.

    Arrival times are computed when rows are read, not at the end of the search.
    """
    config = evolve(_CONFIG, confidence_window=timedelta(minutes=1))
    followed = Followed(config=config)
    followed.server.join(vnodes=3)
    before, _ = followed.server.cluster.generations
    followed.clock.advance(switch(followed) + SECOND - followed.clock.now())
    log_row(followed, 1, followed.clock.now(), min(before.ranges[0].streams))
    deliveries: list[Delivery] = []

    def take_long(asked: RecordedQuery) -> None:
        if "TTL(" in asked.query.cql:
            followed.clock.advance(20 * SECOND)

    for got in followed.follower(EPOCH).follow(EPOCH + 20 * MINUTE):
        deliveries.append(got)
        if isinstance(got, RowsRead):
            followed.before = take_long
    assert sum(each.late for each in deliveries if isinstance(each, WindowComplete)) > 1
    assert cells(deliveries, "c") == [(1,)]


def of_shard(followed: Followed, shard: Shard) -> list[Delivery]:
    """Return the deliveries of one shard."""
    return list(followed.follower(EPOCH, shard).follow(EPOCH + MINUTE))


@pytest.mark.parametrize("mode", ["ignore", "report"])
def test_strays_are_read_only_if_late_rows_are_wanted(followed: Followed, mode: str) -> None:
    """Strays are not delivered if late rows are ignored or only reported."""
    write_around(followed, twice=False)
    found = followed.follow(EPOCH, EPOCH + 5 * MINUTE, late_rows=mode)
    assert sorted(cells(found, "c")) == [(c,) for c in range(0, 60, 2)]


def test_strays_count_as_late_rows_in_reports(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    """Reports count each stray once as a late row, and do not count twins."""
    caplog.set_level("INFO")
    write_around(followed, twice=False)
    astray(followed, 77, switch(followed) + SECOND, by=-1, twice=True)
    found = followed.follow(EPOCH, EPOCH + 5 * MINUTE, late_rows="report")
    reports = [line for line in caplog.messages if "late_rows_sought" in line]
    assert [line for line in reports if "rows=0" not in line] == [
        "event='late_rows_sought' rows=30"
    ]
    ours = [record for record in caplog.records if record.name.startswith("cdc_reader")]
    [warning] = [record for record in ours if record.levelname == "WARNING"]
    assert "event='late_rows' table='ks.t' rows=30 " in warning.getMessage()
    complete = [delivery for delivery in found if isinstance(delivery, WindowComplete)]
    assert sum(delivery.undelivered for delivery in complete) == 30


@pytest.mark.parametrize("reached", ["in the window", "behind it"])
def test_no_restart_repeats_or_loses_a_stray(followed: Followed, reached: str) -> None:
    """No restart repeats or loses a stray, whether at the end of a window or within one."""
    written = write_around(followed, twice=False)
    followed.clock.advance(MINUTE)
    whole = followed.follow(EPOCH, EPOCH + MINUTE)
    for count in range(len(whole)):
        before = whole[: count + 1]
        if isinstance(before[-1], RowsRead) == (reached == "behind it"):
            continue
        rest = followed.follow(checkpoint(before), EPOCH + MINUTE)
        assert sorted(cells(before, "c") + cells(rest, "c")) == written, count


def checkpoint(deliveries: list[Delivery], *, settled: bool = True) -> Checkpoint:
    """Return the checkpoint after all deliveries have been acknowledged."""
    work = Acknowledgements(Checkpoint(EPOCH), settled=settled)
    for each in deliveries:
        if isinstance(each, RowsRead):
            rows = InFlightRows(each.batch, ChangeRows.of_snapshot(each.batch.num_rows))
            work.deliver(rows)
            work.acknowledge(rows, np.arange(rows.count))
        else:
            work.complete(each.checkpoint, None if each.late else each.window)
    taken = work.take()
    assert taken is not None
    return taken


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("by", [-1, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("twice", [False, True])
def test_a_stray_that_arrives_behind_the_position_is_found(
    delivery: str, by: int, twice: bool
) -> None:
    """A stray that arrives behind the position is found.

    Its write time is outside the time span of the generation to which its stream belongs.
    """
    followed = Followed(config=_CONFIG, tablets=True)
    at = followed.server.split_tablets("ks", "t").start_us - by * SECOND
    written = False
    found = []
    for got in followed.follower(EPOCH, delivery=delivery).follow(EPOCH + 10 * MINUTE):
        found.append(got)
        if not written and followed.clock.now() > at + 2 * MINUTE:
            written = True
            astray(followed, 1, at, by=by, twice=twice)
    assert cells(found, "c") == [(1,)]


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.usefixtures("impatient")
def test_strays_of_a_generation_announced_late_are_delivered_once(
    twice: bool, delivery: str
) -> None:
    """Strays that were delivered before their generation was announced are not repeated."""
    followed = Followed(config=_CONFIG)
    followed.server.hold_publication(rows=None)
    followed.server.join(vnodes=3)
    written = write_around(followed, twice=twice)
    found = []
    follower = followed.follower(EPOCH, delivery=delivery)
    for got in follower.follow(EPOCH + 6 * MINUTE):
        found.append(got)
        if got.window.end > EPOCH + 2 * MINUTE:
            followed.server.complete_publication()
    assert Counter(cells(found, "c")) == Counter(written)


@pytest.mark.parametrize("late_rows", ["ignore", "deliver", None])
@pytest.mark.usefixtures("impatient")
def test_twins_of_a_generation_announced_late_are_delivered_once(late_rows: str | None) -> None:
    """Rows that were delivered from the previous generation are not delivered from the new one."""
    followed = Followed(config=_CONFIG)
    followed.server.hold_publication(rows=None)
    followed.server.join(vnodes=3)
    followed.clock.advance(switch(followed) + SECOND - followed.clock.now())
    for c in range(20):
        astray(followed, c, followed.clock.now(), by=-1 if c % 2 else 0, twice=True)
        followed.clock.advance(SECOND // 10)
    found = []
    for got in followed.follower(EPOCH, late_rows=late_rows).follow(EPOCH + 6 * MINUTE):
        found.append(got)
        if got.window.end > EPOCH + 2 * MINUTE:
            followed.server.complete_publication()
    assert Counter(cells(found, "c")) == Counter((c,) for c in range(20))


@pytest.mark.usefixtures("impatient")
def test_a_generation_announced_late_to_a_reader_that_delivers_late_rows_from_now_on() -> None:
    """What late rows a reader delivers does not change which generations it has missed."""
    followed = Followed(config=_CONFIG)
    followed.server.hold_publication(rows=None)
    followed.server.join(vnodes=3)
    followed.clock.advance(switch(followed) + SECOND - followed.clock.now())
    for c in range(10):
        followed.insert(c, c)
        followed.clock.advance(SECOND)
    followed.clock.advance(MINUTE)
    first = followed.follow(EPOCH, EPOCH + 100 * SECOND, late_rows=None)
    [*_, last] = (each.checkpoint for each in first if isinstance(each, WindowComplete))
    followed.server.complete_publication()
    rest = followed.follow(last, EPOCH + 5 * MINUTE, late_rows="deliver")
    assert sorted(cells([*first, *rest], "c")) == [(c,) for c in range(10)]


@pytest.mark.usefixtures("impatient")
def test_an_eager_reader_repeats_no_twin_after_a_restart() -> None:
    """A row that was acknowledged from one stream is not delivered from another."""
    followed = Followed(config=evolve(_CONFIG, late_rows="ignore", poll_interval="1s"))
    followed.server.hold_publication(rows=None)
    followed.server.join(vnodes=3)
    followed.clock.advance(switch(followed) + 2 * SECOND - followed.clock.now())
    astray(followed, 7, followed.clock.now(), by=-1, twice=True)
    first: list[Delivery] = []
    for got in followed.follower(EPOCH, delivery="eager").follow(EPOCH + 5 * MINUTE):
        first.append(got)
        if isinstance(got, RowsRead):
            break
    kept = checkpoint(first, settled=False)
    followed.server.complete_publication()
    rest = followed.follow(kept, EPOCH + 6 * MINUTE, delivery="eager")
    assert cells([*first, *rest], "c") == [(7,)]


@pytest.mark.slow
@pytest.mark.parametrize("since_switch", [-5 * SECOND, 5 * SECOND])
@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.usefixtures("impatient")
def test_rows_that_a_snapshot_missed_are_found_in_a_generation_announced_late(
    since_switch: int, delivery: str
) -> None:
    """A row of a generation announced late is delivered if a snapshot missed it.

    The row arrives after the snapshot has begun, with a write time before the snapshot's position.
    """
    followed = Followed(config=_CONFIG)
    followed.server.hold_publication(rows=None)
    followed.server.join(vnodes=3)
    written = switch(followed) + since_switch
    stream = followed.server.cluster.generations[-1].ranges[0].streams[0]
    followed.clock.advance(written + 20 * SECOND - followed.clock.now())
    log_row(followed, 1, written, stream)  # the snapshot contains it
    followed.clock.advance(20 * SECOND)
    table = CdcTable(followed.connection(), TableName("ks", "t"))
    start = evolve(begin_snapshot(table, followed.clock, _CONFIG), snapshot=None)
    followed.clock.advance(20 * SECOND)
    log_row(followed, 2, written + 1, stream)
    found = []
    follower = followed.follower(start, delivery=delivery)
    for got in follower.follow(start.position + 6 * MINUTE):
        found.append(got)
        if got.window.end > start.position + 2 * MINUTE:
            followed.server.complete_publication()
    assert cells(found, "c") == [(2,)]


def test_a_switch_that_takes_effect_at_once_loses_nothing() -> None:
    """With a ring delay of 0, writes to the old generation are not lost.

    One coordinator learns of the new generation 1.5 s late.
    """
    followed = Followed(config=_CONFIG)
    followed.server.cluster.ring_delay_ms = 0
    written: list[tuple[int]] = []

    def write(count: int) -> None:
        for _ in range(count):
            written.append((len(written),))
            followed.insert(len(written) - 1, len(written) - 1)
            followed.clock.advance(SECOND // 10)

    write(20)
    followed.server.join(vnodes=3)
    followed.server.misplacing.by = -1
    write(15)
    followed.server.misplacing.by = 0
    write(20)
    assert sorted(cells(followed.follow(EPOCH, EPOCH + 2 * MINUTE), "c")) == written


@pytest.mark.parametrize("resize", ["split_tablets", "merge_tablets"])
@pytest.mark.parametrize("twice", [False, True])
def test_strays_on_tablets_are_delivered_once(resize: str, twice: bool) -> None:
    """Strays are delivered once even if a resize of tablets has created a new set of streams."""
    followed = Followed(config=_CONFIG, tablets=True)
    change: Callable[..., Any] = getattr(followed.server, resize)
    start = change("ks", "t").start_us
    followed.clock.advance(start - followed.clock.now() + SECOND)
    for c in range(10):
        astray(followed, c, start + c, by=-1, twice=twice)
        astray(followed, 10 + c, start - 1 - c, by=1, twice=twice)
    found = followed.follow(EPOCH, EPOCH + 2 * MINUTE)
    assert sorted(cells(found, "c")) == [(c,) for c in range(20)]
