"""How far the next micro-batch goes: pure arithmetic on write times, all in µs."""

from __future__ import annotations

from attrs import evolve, frozen

from cdc_reader.duration import micros
from cdc_reader.window import FOREVER
from pyspark_scylla_cdc.options import SourceOptions


@frozen
class Pace:
    """The rules of advance.

    Nothing is read past `final`, nor past now less `confidence`. Spark asks for the latest
    offset some forty times a second and makes a micro-batch of every new answer, so the
    position moves on by `min_advance` at least, except onto `final`; and by `max_window` at
    most, if Spark's trigger asks for a limit at all.
    """

    confidence: int
    min_advance: int
    max_window: int = FOREVER
    final: int = FOREVER

    @classmethod
    def of(cls, options: SourceOptions) -> Pace:
        """The pace that the options of a query set."""
        return cls(
            confidence=micros(options.confidence_window),
            min_advance=micros(options.min_advance),
            max_window=FOREVER if options.max_window is None else micros(options.max_window),
            final=FOREVER if options.ending is None else options.ending,
        )

    def horizon(self, now: int) -> int:
        """How far the log may be read at this moment."""
        return min(now - self.confidence, self.final)

    def until(self, now: int) -> Pace:
        """The pace of a query that ends with what has settled by `now`."""
        return evolve(self, final=self.horizon(now))

    def next(self, position: int, now: int, *, limited: bool) -> int:
        """The end of the next micro-batch; `position` itself if there is none yet."""
        horizon = self.horizon(now)
        if horizon < self.final and horizon - position < self.min_advance:
            return position
        end = min(position + self.max_window, horizon) if limited else horizon
        return max(position, end)
