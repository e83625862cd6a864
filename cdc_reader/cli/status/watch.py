"""Reads the status of tables repeatedly, and continues after outages of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import field, frozen

from cdc_reader._time import FOREVER, Clock, Micros
from cdc_reader.cli.status.counting import RowCounter
from cdc_reader.cli.status.history import Counts, History
from cdc_reader.cli.status.readers import SECOND
from cdc_reader.cli.status.state import Status, StatusSource
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CdcError, StoppedError
from cdc_reader.reading.retry import Stop, stopped_by

_LONGEST_PAUSE = 60 * SECOND


@frozen
class Sample:
    """The status of the tables at a time (µs), and their history.

    `problems` are messages about rows that cannot be counted.
    """

    at: Micros
    statuses: Sequence[Status]
    history: History
    problems: Sequence[str] = ()


class View(Protocol):
    """Shows samples as they are taken."""

    def show(self, sample: Sample) -> None:
        """Show a sample."""
        ...

    def fail(self, at: Micros, problem: str) -> None:
        """Show why there is no new sample."""
        ...


@frozen
class Sampler:
    """Takes samples of tables, and records them in a history."""

    source: StatusSource
    tables: Sequence[TableName]
    history: History = field(factory=History)
    counter: RowCounter | None = None

    def sample(self) -> Sample:
        """Take a sample. Raises errors of `cdc_reader.errors`."""
        statuses = [self.source.of(table) for table in self.tables]
        for status in statuses:
            self.history.add(status)
        problems = [] if self.counter is None else self._count(self.counter)
        return Sample(self.source.clock.now(), statuses, self.history, problems)

    def _count(self, counter: RowCounter) -> list[str]:
        for table in self.tables:
            counts = self.history.counts.setdefault(table, Counts())
            counts.add(counter.take(table))
            counts.late_scan_at = counter.late_scan_at(table)
        return counter.problems()


@frozen
class Watch:
    """Shows a sample every `interval` µs until `end`, or until `stop` is set.

    As long as the cluster does not respond, the pause doubles each time, up to a minute.
    `is_wanted` returns False when nobody reads the output anymore.
    """

    sampler: Sampler
    view: View
    clock: Clock
    stop: Stop
    interval: int
    end: Micros = FOREVER
    is_wanted: Callable[[], bool] = lambda: True

    def run(self) -> None:
        """Show samples until the end. Raises the first sample's error; later errors are shown."""
        with stopped_by(self.stop):
            try:
                self.view.show(self.sampler.sample())
                pause = self.interval
                while self._is_on(pause):
                    pause = self._next(pause)
            except StoppedError:
                return

    def _is_on(self, pause: int) -> bool:
        """Sleep; return whether to take another sample."""
        left = self.end - self.clock.now()
        self.clock.sleep(max(0, min(pause, left)), self.stop)
        return pause < left and not self.stop.is_set() and self.is_wanted()

    def _next(self, pause: int) -> int:
        """Show a sample, or the reason why there is none; return the next pause."""
        try:
            self.view.show(self.sampler.sample())
        except StoppedError:
            raise
        except CdcError as error:
            self.sampler.source.reconnect()
            pause = max(self.interval, min(2 * pause, _LONGEST_PAUSE))
            again = f"trying again in {pause / SECOND:g} s"
            self.view.fail(self.clock.now(), f"no answer: {error}; {again}")
            return pause
        return self.interval
