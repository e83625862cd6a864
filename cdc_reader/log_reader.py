"""Reading one table's log through the ports: bounded, and following. No I/O of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator

import pyarrow as pa
from attrs import frozen

from cdc_reader.config import ReadConfig
from cdc_reader.duration import micros
from cdc_reader.logs import get_logger
from cdc_reader.planner import Planner
from cdc_reader.ports import Clock, GenerationSource, LogSource
from cdc_reader.task import Task
from cdc_reader.window import BEGINNING, FOREVER, Window, WindowSize

log = get_logger(__name__)


@frozen
class Delivery:
    """A batch of `window`; or, with no batch, the word that the window is complete.

    Store `position` when a delivery is `complete`: all rows before it have been delivered.
    """

    window: Window
    batch: pa.RecordBatch | None = None

    @property
    def complete(self) -> bool:
        return self.batch is None

    @property
    def position(self) -> int:
        """The position, in µs, up to which the log is delivered once the window is."""
        return self.window.end


class LogReader:
    """Reads windows of a log, through a `LogSource` and a `GenerationSource`."""

    def __init__(
        self, source: LogSource, generations: GenerationSource, clock: Clock, config: ReadConfig
    ) -> None:
        self._source = source
        self._clock = clock
        self._config = config
        self._planner = Planner(generations, config.chunk_size)
        self._stopped = threading.Event()

    def first_timestamp(self) -> int | None:
        """When, in µs, the oldest generation began; None if none is announced yet."""
        return min(self._planner.refresh().starts, default=None)

    def plan(self, window: Window) -> list[Task]:
        """The tasks of `window`, by the generations visible now."""
        self._planner.refresh()
        return self._planner.plan(window)

    def read(self, tasks: Iterable[Task]) -> Iterator[pa.RecordBatch]:
        """The rows of `tasks`, task after task, with several of them under way at a time."""
        started: deque[Iterator[pa.RecordBatch]] = deque()
        for task in tasks:
            if len(started) >= self._config.in_flight:
                yield from started.popleft()
            started.append(self._source.read(task))
        while started:
            yield from started.popleft()

    def batches(self, start: int | None, end: int | None) -> Iterator[pa.RecordBatch]:
        """All rows of [start, end) that are there now, unsettled ones too."""
        window = Window(BEGINNING if start is None else start, FOREVER if end is None else end)
        yield from self.read(self.plan(window))

    def follow(self, start: int) -> Iterator[Delivery]:
        """Windows from `start` on, until `stop`; see `CdcReader.follow`."""
        position, size = start, WindowSize(*self._sizes())
        while not self._stopped.is_set():
            horizon = self._horizon()
            while position < horizon and not self._stopped.is_set():
                window = self._next_window(position, horizon, size)
                empty = yield from self._deliver(window)
                position, size = window.end, size.after(empty=empty)
            self._pause(position, horizon)

    def stop(self) -> None:
        """End `follow` after the batch it is at, from any thread; wakes it if it waits."""
        self._stopped.set()

    def _sizes(self) -> tuple[int, int]:
        return micros(self._config.window), micros(self._config.max_window)

    def _horizon(self) -> int:
        """How far the log is settled, and its generations known.

        The clock is read before the generations are: every one of them that begins before
        the horizon had the confidence window to become visible. With none visible nothing
        is settled, for the first may be announced after it began.
        """
        settled = self._clock.now() - micros(self._config.confidence_window)
        return settled if self._planner.refresh().starts else BEGINNING

    def _next_window(self, position: int, horizon: int, size: WindowSize) -> Window:
        """All that lies before the first generation is one window: there is nothing in it."""
        first = self._planner.timeline.starts[0]
        if position < first:
            return Window(position, min(first, horizon))
        return size.next_window(position, horizon)

    def _pause(self, position: int, horizon: int) -> None:
        """Sleep until a poll interval's worth of log has settled; not at all while behind."""
        pause = micros(self._config.poll_interval)
        if horizon > BEGINNING:
            due = position + micros(self._config.confidence_window) + pause
            pause = due - self._clock.now()
        if pause > 0:
            self._clock.sleep(pause, self._stopped)

    def _deliver(self, window: Window) -> Generator[Delivery, None, bool]:
        """The window's batches and its completion; returns whether it was empty."""
        rows = 0
        for batch in self.read(self._planner.plan(window)):
            if self._stopped.is_set():
                return False
            if batch.num_rows:
                rows += batch.num_rows
                yield Delivery(window, batch)
        log.debug("window_read", window=str(window), rows=rows)
        yield Delivery(window)
        return rows == 0
