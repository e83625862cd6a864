"""Computes where the next micro-batch ends, from write times alone; all times are in µs."""

from __future__ import annotations

from attrs import evolve, frozen

from cdc_reader._time import FOREVER, Micros, duration_micros
from cdc_reader.reading.horizon import settled_before
from pyspark_scylla_cdc.options.source_options import SourceOptions

SHORTEST_STEP, LONGEST_STEP = 1_000, 1_000_000
"""A step is as long as the confidence window, within these limits, in µs.

A shorter confidence window means that rows are wanted sooner. A longer step means fewer queries of
idle logs.
"""


@frozen
class AdvancePolicy:
    """The rules for moving the position.

    The position never passes `final`, and stays at least `confidence` behind the present. Spark
    requests the latest offset about forty times a second, and starts a micro-batch for each new
    offset. Therefore, the position advances by at least one `step`, except in the last step to
    `final`. It advances by at most `max_window` if Spark's trigger sets a limit.
    """

    confidence: int
    step: int
    max_window: int = FOREVER
    final: Micros = FOREVER

    @classmethod
    def of(cls, options: SourceOptions) -> AdvancePolicy:
        """Return the policy set by the options of a query."""
        return cls(
            confidence=options.confidence,
            step=max(SHORTEST_STEP, min(options.confidence, LONGEST_STEP)),
            max_window=FOREVER
            if options.max_window is None
            else duration_micros(options.max_window),
            final=FOREVER if options.ending is None else options.ending,
        )

    def settled(self, now: Micros) -> Micros:
        """Return the write time up to which the log may be read now."""
        return min(settled_before(now, self.confidence), self.final)

    def has_caught_up(self, end: Micros, now: Micros) -> bool:
        """Return True if `end` covers all settled rows and the query continues past `end`."""
        return end == self.settled(now) < self.final

    def finishing(self, now: Micros) -> AdvancePolicy:
        """Return the policy of a query that ends when it has read all rows settled by `now`."""
        return evolve(self, final=self.settled(now))

    def next(self, position: Micros, now: Micros, *, limited: bool) -> Micros:
        """Return the end of the next micro-batch, or `position` if it is too early for one."""
        settled = self.settled(now)
        if settled < self.final and settled - position < self.step:
            return position
        end = min(position + self.max_window, settled) if limited else settled
        return max(position, end)
