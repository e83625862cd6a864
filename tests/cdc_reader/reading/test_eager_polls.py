"""Eager delivery polls busy streams often and idle ones seldom, and finds every row soon."""

from __future__ import annotations

import threading
from datetime import timedelta

from attrs import define, field

from cdc_reader.config import ReadConfig
from cdc_reader.testing import ManualClock
from tests.cdc_reader.support.followed import EPOCH, SECOND, Followed, rows_read

MILLISECOND = 1_000
INTERVAL, LONGEST = 30 * MILLISECOND, 240 * MILLISECOND


@define(eq=False)
class WritingClock(ManualClock):
    """A manual clock that writes rows when it reaches their planned times."""

    followed: Followed | None = None
    planned: list[tuple[int, int, int, int]] = field(factory=list)
    """For each row: when to write it, its partition key, its number, and its timestamp."""

    def __attrs_pre_init__(self) -> None:
        super().__init__(EPOCH)

    def sleep(self, micros: int, wake: threading.Event) -> None:
        """Advance the clock, and write the rows planned for the elapsed time."""
        end = self.now() + micros
        while self.planned and self.planned[0][0] <= end:
            at, key, number, timestamp = self.planned.pop(0)
            self.advance(max(0, at - self.now()))
            assert self.followed is not None
            self.followed.insert(key, number, timestamp)
        super().sleep(max(0, end - self.now()), wake)


def delays(planned: list[tuple[int, int, int, int]]) -> tuple[Followed, dict[int, int]]:
    """Read eagerly while rows are written. Return the server and each row's delay in µs."""
    clock = WritingClock(planned=sorted(planned))
    written = {number: at for at, _, number, _ in planned}
    followed = Followed(clock=clock, config=ReadConfig(delivery="eager"))
    clock.followed = followed
    found: dict[int, int] = {}
    for delivery in followed.follower(EPOCH).follow(EPOCH + 20 * SECOND):
        for read in rows_read([delivery]):
            for number in read.batch.column("c").to_pylist():
                assert number not in found, "a row is delivered twice"
                found[number] = clock.now() - written[number]
    assert set(found) == set(written)
    return followed, found


def test_rows_are_delivered_within_an_interval_while_there_are_more() -> None:
    """The first row in an idle stream waits up to eight poll intervals, later rows at most one."""
    every = [EPOCH + 10 * SECOND + step * 80 * MILLISECOND for step in range(40)]
    _, found = delays([(at, 7, number, at) for number, at in enumerate(every)])  # in one stream
    assert found.pop(0) <= LONGEST
    assert max(found.values()) <= INTERVAL


def test_rows_of_idle_streams_are_delivered_soon() -> None:
    """A row is delivered within the longest poll interval, even if its stream was idle before."""
    planned = [(at, n, n, at) for n in range(30) for at in [EPOCH + SECOND + n * 317 * MILLISECOND]]
    _, found = delays(planned)
    assert max(found.values()) <= LONGEST


def test_only_new_rows_ask_for_the_schema() -> None:
    """A row asks for the schema's version when it is new, not when later polls read it again."""

    def asked(planned: list[tuple[int, int, int, int]]) -> int:
        followed, _ = delays(planned)
        return sum("schema_version" in query.query.cql for query in followed.asked)

    at = EPOCH + 3 * SECOND
    assert asked([(at, 7, 0, at)]) == asked([]) + 1


def test_rows_with_an_old_timestamp_are_delivered_within_a_second() -> None:
    """Rows with old timestamps are delivered within a second.

    Most polls read only the newest rows. Older rows are read once a second.
    """
    planned = [
        (at, n, n, at - 10 * SECOND)
        for n in range(30)
        for at in [EPOCH + 11 * SECOND + n * 90 * MILLISECOND]
    ]
    _, found = delays(planned)
    assert SECOND // 2 < max(found.values()) <= SECOND + LONGEST


def test_an_idle_table_is_polled_four_times_a_second() -> None:
    """Each chunk of an idle table is polled four times a second.

    One of these polls reads the whole confidence window.
    """
    followed, _ = delays([])
    log = [asked for asked in followed.asked if "scylla_cdc_log" in asked.query.cql]
    seconds = (followed.clock.now() - EPOCH) / SECOND
    # Each of the six streams is a chunk. Every 5 s, when the position moves, all chunks are read.
    assert len(log) <= 6 * (SECOND / LONGEST + 1 / 5) * seconds * 1.1 + 12


def test_an_end_in_the_past_is_reached_without_polling() -> None:
    """A read to an end in the past reaches the end without waiting."""
    followed = Followed(config=ReadConfig(delivery="eager", window=timedelta(days=1)))
    followed.insert(1, 1)
    followed.clock.advance(3600 * SECOND)
    deliveries = followed.follow(EPOCH - SECOND, EPOCH + SECOND)
    assert len(rows_read(deliveries)) == 1
    assert followed.clock.now() == EPOCH + 3600 * SECOND
