"""Following one table's log, window after window, through whatever the cluster does.

What is kept is a position P: every row written before it has been delivered. A pass looks at
the clock, then at schema and generations, and only then reads up to the clock's time less the
confidence window; so what it reads had that long to arrive and to be announced. There is no
barrier between generations: a row's timestamp decides whose streams it is in, so a window
takes of each generation what lies in its own span of time, older first.

A generation that turns up when P is past its beginning is caught up with: its streams hold
nothing that was delivered, and those of the one before hold nothing of its time. So being
announced late loses no row and repeats none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa

from cdc_reader.config import DeliveryMode, LateRowsMode, ReadConfig
from cdc_reader.current_log import CurrentLog
from cdc_reader.delivery import Delivery
from cdc_reader.duration import micros
from cdc_reader.errors import ConfigurationError
from cdc_reader.late_rows import LateRows, Sweep
from cdc_reader.logs import get_logger
from cdc_reader.outlook import Outlook
from cdc_reader.planner import Planner
from cdc_reader.ports import Clock, LogTable
from cdc_reader.progress import Checkpoint
from cdc_reader.row_keys import leave_out
from cdc_reader.shard import Shard
from cdc_reader.unsettled import Unsettled
from cdc_reader.window import BEGINNING, FOREVER, Window, WindowSize
from cdc_reader.window_reader import WindowReader

log = get_logger(__name__)

_LOOK_AGAIN = 1_000_000
"""µs between two looks at schema and generations while rows are polled for more often. The
position moves by what the last look knew; a new column is noticed with the row that has it."""
_AHEAD = 60_000_000
"""µs past our clock that an eager read looks: the server takes timestamps of up to 5 s past
its own, which may be ahead of ours."""


class Follower:
    """Follows the log of one table from `start` on; in one thread, `stop` excepted.

    A start at BEGINNING is all that the log still holds.
    """

    def __init__(
        self,
        table: LogTable,
        clock: Clock,
        config: ReadConfig,
        start: Checkpoint,
        shard: Shard | None = None,
    ) -> None:
        self._clock = clock
        self._config = config
        self._log = CurrentLog(table, config.in_flight)
        self._planner = Planner(table.generations, config.chunk_size, shard)
        self._reader = WindowReader(self._log, self._planner, clock, config, self._is_fresh)
        self._outlook = Outlook(table.generations, self._planner, config, start)
        self._size = WindowSize(micros(config.window), micros(config.max_window))
        self._is_eager = config.delivery == DeliveryMode.EAGER
        self._confidence = micros(config.confidence_window)
        self._position = start.position
        self._marks = dict(start.marks)
        self._unsettled = Unsettled()
        self._start = start
        self._late: LateRows | None = None
        self._stopped = threading.Event()

    def follow(self, end: int = FOREVER) -> Iterator[Delivery]:
        """Deliver every row written before `end`, until `stop`.

        Raises errors of `cdc_reader.errors`; those that may pass only after the retry deadline.
        """
        looked = horizon = BEGINNING
        while not self._stopped.is_set():
            began = self._clock.now()
            if not self._is_eager or not 0 <= began - looked < _LOOK_AGAIN:
                looked, horizon = began, self._look(began)
            if horizon > BEGINNING:
                yield from self._pass(horizon, end)
            if self._position >= end:
                return
            self._pause(began)

    def stop(self) -> None:
        """End `follow` after the batch it is at, from any thread; wakes it if it waits."""
        self._stopped.set()

    def _look(self, now: int) -> int:
        """How far the log is settled at `now`, all that is to be known of it known."""
        self._log.refresh()
        ttl = self._log.schema.base.cdc.ttl
        horizon = self._outlook.look(now, self._position, ttl)
        if horizon > BEGINNING:
            self._position = max(self._position, self._outlook.oldest)
            self._watch_for_late_rows(now, ttl)
        return horizon

    def _pass(self, horizon: int, end: int) -> Iterator[Delivery]:
        yield from self._catch_up()
        settled = min(horizon, end)
        if not self._is_eager or settled - self._position > self._size.base:
            yield from self._settle(settled)
        if self._is_eager:
            yield from self._poll(settled, end)
        if self._late is not None:
            yield from self._sweep(self._late)

    def _catch_up(self) -> Iterator[Delivery]:
        """Said to be complete all at once: a checkpoint names none of several that is not read."""
        missed = self._outlook.missed(self._position)
        for span in missed:
            log.warning("generation_announced_late", start=span.start)
            window = Window(span.start, min(span.end, self._position))
            yield from self._read(window, late=True)
        if missed and not self._stopped.is_set():
            yield self._complete(Window(missed[0].start, self._position), late=True)

    def _settle(self, horizon: int) -> Iterator[Delivery]:
        """Window after window up to `horizon`; nothing sleeps on the way."""
        while self._position < horizon and not self._stopped.is_set():
            window = self._next_window(horizon)
            began = self._clock.now()
            yield from self._read(window)
            if self._stopped.is_set():
                return
            self._size = self._size.after(empty=not self._reader.rows)
            log.debug("window_read", window=str(window), rows=self._reader.rows)
            yield self._move_to(window.end, began)

    def _next_window(self, horizon: int) -> Window:
        """All that lies before the first generation is one window: there is nothing in it."""
        first = self._planner.timeline.starts[0]
        if self._position < first:
            return Window(self._position, min(first, horizon))
        return self._size.next_window(self._position, horizon)

    def _poll(self, settled: int, end: int) -> Iterator[Delivery]:
        """All rows from the position on that have not been delivered, settled or not.

        The position moves once a poll interval's worth of them has settled.
        """
        began = self._clock.now()
        yield from self._read(Window(self._position, min(began + _AHEAD, end)))
        is_worth = settled - self._position >= micros(self._config.poll_interval)
        if (is_worth or settled == end) and not self._stopped.is_set():
            yield self._move_to(settled, began)

    def _read(self, window: Window, *, late: bool = False) -> Iterator[Delivery]:
        """The window's rows but those that were delivered before."""
        self._unsettled.begin(window.end)
        for batch in self._reader.read(window, remaining=self._late is not None):
            for rows, is_behind in self._new(batch):
                if self._stopped.is_set():
                    return
                yield Delivery(self._log.schema, window, rows, late=late or is_behind)

    def _is_fresh(self, batch: pa.RecordBatch) -> bool:
        """Whether it has rows to hand on that may not have settled."""
        return self._is_eager and self._unsettled.has_new(leave_out(batch, self._marks))

    def _new(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Without what the start's marks name, or, if eager, an earlier poll delivered."""
        rows = leave_out(batch, self._marks)
        if self._late is not None:
            ttl = self._log.schema.base.cdc.ttl
            rows = self._late.delivered(rows, ttl, self._clock.now())
        if self._is_eager:
            yield from self._unsettled.new(rows)
        elif rows.num_rows:
            yield rows, False

    def _move_to(self, position: int, began: int) -> Delivery:
        """The window up to `position`, in a read that `began` then, is complete."""
        window, self._position = Window(self._position, position), position
        if self._late is not None:
            self._late.window_read(position, began)
        self._marks = {s: mark for s, mark in self._marks.items() if mark.reaches(position)}
        self._unsettled.forget(position)
        return self._complete(window)

    def _complete(self, window: Window, *, late: bool = False) -> Delivery:
        return Delivery(
            self._log.schema,
            window,
            late=late,
            generation=self._outlook.newest,
            swept=None if self._late is None else self._late.swept,
            queries=self._reader.queries,
        )

    def _watch_for_late_rows(self, now: int, ttl: int) -> None:
        """From the first look on: what lies before the start is looked at only if we read it."""
        if self._config.late_rows == LateRowsMode.IGNORE:
            return
        if not ttl:
            raise ConfigurationError(
                "late_rows",
                self._config.late_rows,
                f"the log of {self._log.schema.base.name} keeps rows for good, and only a TTL "
                "tells when a row arrived: set the table's cdc ttl, or 'ignore' late rows",
            )
        if self._late is None:
            position, swept, marks = self._position, self._start.swept, self._start.marks
            start = position if swept is None else BEGINNING
            if swept is None:
                swept = BEGINNING if marks else now
            self._late = LateRows(start, position, swept, self._confidence, marks)

    def _sweep(self, late: LateRows) -> Iterator[Delivery]:
        """Look back for late rows, if it is time to; they are few, and held until all are found."""
        now, interval = self._clock.now(), micros(self._config.late_interval)
        if now < late.swept + interval or self._stopped.is_set():
            return
        sweep = late.sweep(self._position, micros(self._config.late_horizon), now)
        found = list(self._late_rows(sweep))
        while found and self._log.refresh():
            found = list(self._late_rows(sweep))
        log.info("late_rows_sought", rows=sum(batch.num_rows for batch in found))
        if self._config.late_rows == LateRowsMode.DELIVER:
            yield from (Delivery(self._log.schema, sweep.window, rows, late=True) for rows in found)
        yield self._complete(sweep.window, late=True)

    def _late_rows(self, sweep: Sweep) -> Iterator[pa.RecordBatch]:
        ttl = self._log.schema.base.cdc.ttl
        for batch in self._reader.look_back(sweep.window):
            rows = sweep.late(batch, ttl, self._clock.now())
            if rows.num_rows:
                yield rows

    def _pause(self, began: int) -> None:
        """Sleep until it is time for another pass; not at all after one that took so long."""
        interval = self._config.eager_interval if self._is_eager else self._config.poll_interval
        took = max(0, self._clock.now() - began)  # a clock that was set back is not waited for
        if took < micros(interval):
            self._clock.sleep(micros(interval) - took, self._stopped)
