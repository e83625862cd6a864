"""The measurements of reads that determine the strategy."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from attrs import field, frozen

from cdc_reader.cql.schema import STREAM_ID
from cdc_reader.streams.strategy import Strategy, StrategyChoice
from cdc_reader.testing import ManualClock
from pyspark_scylla_cdc.executors.timing import timed

COST = {Strategy.STREAMS: 5, Strategy.RANGES: 2}
"""The time that a read with each strategy takes, in µs per stream."""
SMALL, LARGE = 100, 1_000


@frozen
class Reads:
    """Successive reads of one log. `COST` determines how long each waits for its rows."""

    clock: ManualClock = field(factory=lambda: ManualClock(0))
    choice: StrategyChoice = field(factory=StrategyChoice)

    def read(self, streams: int, filled: int = 1, handling: int = 0) -> Strategy:
        """Read some streams, with `handling` µs of work per batch. Return the strategy used."""
        used = self.choice.next()
        batches = self._waited_for(streams * COST[used], filled)
        rows = timed(batches, self.choice, used, self.clock, streams=streams, queries=streams // 10)
        assert sum(batch.num_rows for batch in rows if self.clock.advance(handling) >= 0) == filled
        return used

    def _waited_for(self, micros: int, filled: int) -> Iterator[pa.RecordBatch]:
        self.clock.advance(micros // 2)
        yield pa.record_batch({STREAM_ID: [b"%016d" % number for number in range(filled)]})
        self.clock.advance(micros - micros // 2)


@pytest.mark.parametrize(("often", "once"), [(SMALL, LARGE), (LARGE, SMALL)])
def test_reads_of_all_sizes_compare(often: int, once: int) -> None:
    """Reads of different sizes are compared by their time per stream."""
    reads = Reads()
    assert {reads.read(often) for _ in range(20)} == {Strategy.STREAMS}
    assert reads.read(once) is Strategy.RANGES
    assert reads.read(often) is Strategy.RANGES


def test_time_spent_by_the_consumer_does_not_count() -> None:
    """The time that the consumer spends on rows does not count: it is equal for both strategies."""
    reads = Reads()
    for _ in range(20):
        reads.read(LARGE)
    assert reads.read(LARGE, handling=10**9) is Strategy.RANGES
    assert reads.read(LARGE) is Strategy.RANGES


def test_streams_with_rows_are_counted() -> None:
    """While many streams contain rows, only the strategy `streams` is used."""
    reads = Reads()
    assert {reads.read(LARGE, filled=LARGE // 10) for _ in range(50)} == {Strategy.STREAMS}
    for _ in range(21):
        reads.read(LARGE)
    assert reads.read(LARGE, filled=LARGE // 10) is Strategy.RANGES
    assert reads.read(LARGE) is Strategy.STREAMS


def test_an_abandoned_read_is_not_recorded() -> None:
    """If Spark does not consume all rows of a read, the read is not recorded."""
    reads = Reads()
    for _ in range(100):
        batches = reads._waited_for(10**6, 1)
        used = reads.choice.next()
        rows = timed(batches, reads.choice, used, reads.clock, streams=SMALL, queries=10)
        next(rows)
        rows.close()  # type: ignore[attr-defined]  # it is a generator, which Spark closes
        assert used is Strategy.STREAMS
