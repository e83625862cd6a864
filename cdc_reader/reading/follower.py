"""Follows one table's log, window by window, across new generations and schema changes.

The state is a cursor (`reading.cursor`). A pass reads the clock, then the schema and the
generations; then `reading.advance` decides, from the cursor and what was seen, what to read next.
The rows of each step are read by `StepReader`, and the cursor moves after it.

A read is made of parts. Each part is an iterator of deliveries, and the follower takes the next
decision when the part has been consumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain

from attrs import evolve, frozen

from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, FOREVER, Clock, Micros, duration_micros
from cdc_reader.config import (
    DeliveryMode,
    LateRowsMode,
    ReadConfig,
    poll_interval,
    refresh_interval,
)
from cdc_reader.errors import ConfigurationError, StoppedError
from cdc_reader.reading import tuning
from cdc_reader.reading.advance import (
    Limits,
    Step,
    View,
    advance,
    is_search_due,
    known_at,
    oldest,
    warn_of_future,
    written_before,
)
from cdc_reader.reading.cursor import Checkpoint, LateState
from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete
from cdc_reader.reading.expiry import TtlHistory, first_written
from cdc_reader.reading.late.keys import KeyReader
from cdc_reader.reading.late.report import LateReport
from cdc_reader.reading.late.rows import Delivered
from cdc_reader.reading.late.strays import Twins
from cdc_reader.reading.loss import FollowerLosses, OnLoss
from cdc_reader.reading.ports import LogTable
from cdc_reader.reading.retry import Stop
from cdc_reader.reading.step_reader import StepReader
from cdc_reader.reading.view import Views
from cdc_reader.reading.windows.fetch import CurrentLog
from cdc_reader.reading.windows.window_reader import ByWriteTime
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.window import Window, WindowSize

logger = get_logger(__name__)

_SHARED = 500_000
"""Passes of several tables that begin within this time, in µs, see the cluster as of one moment."""

Part = Iterable[Delivery]


@frozen
class _IdleStep:
    """A step whose window was empty, when its read ended at `read_at` (µs)."""

    step: Step
    read_at: Micros


class Follower:
    """Follows the log of one table from `start`.

    If `start` is at BEGINNING, everything that the log still contains is read. Not thread-safe,
    except for `stop`.
    """

    def __init__(
        self,
        table: LogTable,
        clock: Clock,
        config: ReadConfig,
        start: Checkpoint,
        shard: Shard | None = None,
        stop: Stop | None = None,
        on_loss: OnLoss | None = None,
        *,
        at_oldest: bool = False,
    ) -> None:
        self._clock = clock
        self._config = config
        self._cursor = start
        self._start = start
        self._stop = stop or Stop()
        self._confidence = duration_micros(config.confidence_window)
        self._is_eager = config.delivery is DeliveryMode.EAGER
        self._log = CurrentLog(table, start)
        self._steps = StepReader(table, self._log, clock, config, start, shard, self._stop)
        self._sample = KeyReader(
            CurrentLog(table, start, keys_only=True),
            table.generations,
            clock,
            duration_micros(config.late_horizon),
            shard=shard,
            queries=tuning.REPORT_QUERIES,
        )
        self._views = Views(lambda: table.generations, self._confidence)
        self._losses = FollowerLosses(config.data_loss, start, on_loss, at_oldest=at_oldest)
        self._size = WindowSize(duration_micros(config.window), tuning.LONGEST_WINDOW)
        self._poll_interval = poll_interval(config)
        self._refresh_interval = refresh_interval(config)
        self._shared = min(_SHARED, self._refresh_interval // 2)
        self._refreshed = BEGINNING
        """The time of the last refresh. Until the next one, eager delivery polls only the chunks of
        streams that are due, and the position does not move. A new column is noticed when its first
        row is read."""
        self._view: View | None = None
        self._was_idle = False
        """True if the last window that ended at the horizon was empty."""
        self._idle: _IdleStep | None = None
        self._marked_at = 0 if start.late is None else start.late.reads[-1]
        """The earliest time, in µs, at which the rows that the start's marks identify were read."""
        self._report: LateReport | None = None
        self._late_at_start = start.late

    @property
    def ttls(self) -> TtlHistory:
        """The log's TTL over time; may be empty until the schema is read for the first time."""
        return self._cursor.ttls

    @property
    def first(self) -> Micros | None:
        """The position where reading began, in µs; None until the log's oldest row is known."""
        if self._start.position > BEGINNING:
            return self._start.position
        return self._cursor.generations.since if self._cursor.generations else None

    def follow(self, end: Micros = FOREVER) -> Iterator[Delivery]:
        """Deliver every row written before `end` (µs), unless `stop` is called first.

        Blocks between passes. Raises errors of `cdc_reader.errors`; transient errors are raised
        only after the retry deadline.
        """
        parts = chain.from_iterable(self._parts(end))
        with suppress(StoppedError):
            for delivery in parts:
                self._stop.check()
                yield delivery

    def with_table_facts(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with the table's id and the history of its TTL.

        A checkpoint within the first window has nothing of late rows yet: it gets their state when
        reading began.
        """
        known = evolve(checkpoint, ttls=self.ttls)
        if known.late is None and known.position == self._start.position:
            known = evolve(known, late=self._late_at_start)
        return self._log.with_table(known)

    def stop(self) -> None:
        """End `follow` immediately, without waiting for a retry, response or pause. Thread-safe."""
        self._stop.set()

    def _parts(self, end: Micros) -> Iterator[Part]:
        while not self._stop.is_set():
            began = self._clock.now()
            if not (self._is_eager and 0 <= began - self._refreshed < self._refresh_interval):
                self._refreshed, self._view = began, self._refresh(began, end)
                if self._view is not None:
                    yield from self._pass(self._view, end)
            if self._is_eager and self._view is not None:
                yield self._poll(end)
            if self._cursor.position >= end:
                return
            self._pause(began)

    def _refresh(self, now: Micros, end: Micros) -> View | None:
        """Refresh the schema, TTLs and generations; return None while there are no generations.

        If everything before `end` has settled, no later refresh finds what this one overlooks. All
        nodes are asked then.
        """
        limits = self._limits(end)
        moment = self._log.moment(now, 0 if limits.settled(now) == end else self._shared)
        self._log.refresh(moment)
        base = self._log.schema.base
        self._see_ttls(now, self._cursor.position)
        view = self._views.next(moment, of_all=limits.settled(moment) == end)
        if not view.visible.starts:
            return None
        if self._view is None:
            self._begin(view, now)
        else:
            self._losses.report(self._cursor, now, base.name)
        self._watch_for_late_rows(now, base.cdc.ttl)
        return view

    def _begin(self, view: View, now: Micros) -> None:
        """Begin to read at the position, or at the oldest row; all known generations are read."""
        cursor, name = self._cursor, self._log.schema.base.name
        warn_of_future(cursor.position, now, name)
        self._losses.begin(cursor, now, name)
        if cursor.position == BEGINNING:
            cursor = evolve(cursor, position=oldest(view.visible.starts, cursor.ttls, now))
        if not cursor.has_read:
            known = known_at(cursor, view.visible, cursor.ttls.oldest_kept(now))
            created = cursor.ttls.created
            if self._cursor.position == BEGINNING and created is not None:
                # An older generation may be announced later, but has no rows before the log.
                known = evolve(known, since=min(known.since, first_written(created)))
            cursor = evolve(cursor, generations=known)
        self._cursor = cursor

    def _limits(self, end: Micros) -> Limits:
        shortest = tuning.SETTLE_INTERVAL if self._is_eager else 1
        reach = self._steps.planner.reach
        longest = self._size.current
        return Limits(self._confidence, end, longest, shortest, reach, by_generation=True)

    def _pass(self, view: View, end: Micros) -> Iterator[Part]:
        """Read step after step, without pauses, until everything that has settled is read.

        A reader that is behind also searches for late rows between windows, before its position is
        too far ahead of them. It first reads past the start's marks, so that the first search finds
        late rows that the marks exclude.
        """
        yield from self._leave_idle(view.moment)
        while not self._stop.is_set() and self._idle is None:
            step = advance(self._cursor, view, self._limits(end))
            self._steps.planner.use(step.timeline)
            if step.fresh:
                yield from self._catch_up(step)
                continue
            if step.window.is_empty:
                break
            if not self._has_marks:
                yield from self._search()
            limit = min(self._limits(end).settled(view.moment), view.unannounced)
            yield from self._settle(step, is_newest=step.window.end == limit, is_last=limit == end)
        yield from self._search()

    def _catch_up(self, step: Step) -> Iterator[Part]:
        """Read generations that appeared after the position had passed their start.

        A single `WindowComplete` follows all of them, because the cursor knows all of them or none.
        """
        cursor, delivered = self._cursor, self._delivered(self._clock.now())
        for start, window in step.missed.items():
            logger.warning("generation_announced_late", start=start)
            seen = self._steps.delivered_before(window, step, cursor)
            yield self._steps.rows(window, cursor, delivered, seen=seen)
            self._check_read(window, late=True)
        behind = step.behind(cursor, self._steps.planner.reach)
        yield self._steps.fresh_strays(behind, step, cursor, delivered)
        if self._stop.is_set():
            return
        cursor = evolve(self._cursor, generations=step.generations)
        if cursor.late is not None and delivered is not None:
            cursor = evolve(cursor, late=cursor.late.knowing(delivered.names))
        self._cursor = cursor
        yield (self._complete(behind, late=True),)

    def _leave_idle(self, moment: Micros) -> Iterator[Part]:
        """Move past the window that the last pass found empty.

        That the log was not dropped meanwhile is known by what this pass asked for, if it asked
        after the window was read.
        """
        idle, self._idle = self._idle, None
        if idle is None:
            return
        if moment >= idle.read_at:
            name = self._log.schema.base.name
            self._losses.check_read(idle.step.window, self._cursor, idle.read_at, name)
        else:
            self._check_read(idle.step.window)
        yield (self._move(idle.step, idle.read_at, None),)

    def _settle(self, step: Step, *, is_newest: bool, is_last: bool) -> Iterator[Part]:
        """Read the window of a step, and move past it.

        A window that is empty, like the last window before it, and ends with the newest settled row
        costs no further query: the next pass moves past it, unless `is_last` is True.
        """
        window, cursor, began = step.window, self._cursor, self._clock.now()
        delivered = self._delivered(min(began, self._marked_at) if self._has_marks else began)
        strayed = self._steps.find_strays(window)
        rows, crowded = self._steps.rows(window, cursor, delivered, twins=strayed.twins), False
        if self._config.delivery is DeliveryMode.ORDERED:
            held = self._held(window, delivered, strayed.twins)
            crowded = held is None or held.size > tuning.SORTED_BYTES // 4
            if held is None and window.length > 1:
                self._size = self._size.below(window.length)
                return
            if held is not None:  # rows of a single microsecond need no sorting
                rows = self._sorted(window, held)
        yield rows
        yield self._steps.strays(window, strayed, cursor, delivered)
        if self._stop.is_set():
            return
        is_empty = not self._steps.rows_read
        self._size = self._size.after(empty=is_empty, crowded=crowded)
        logger.debug("window_read", window=str(window), rows=self._steps.rows_read)
        was_idle, self._was_idle = self._was_idle, is_newest and is_empty
        if was_idle and self._was_idle and not is_last and self._may_wait:
            self._idle = _IdleStep(step, self._clock.now())
            return
        self._check_read(window)
        yield (self._move(step, began, delivered),)

    @property
    def _may_wait(self) -> bool:
        """True if the next pass may move past a window instead of this one.

        Not if strays were read, because they are delivered only once if the position moves.
        """
        return not self._is_eager and self._cursor.late is None

    @property
    def _has_marks(self) -> bool:
        return bool(self._steps.undelivered.marks)

    def _held(
        self, window: Window, delivered: Delivered | None, twins: Twins
    ) -> ByWriteTime | None:
        """Collect the window's rows; return None if they take too much memory."""
        while True:
            schema, held = self._log.schema, ByWriteTime()
            for read in self._steps.rows(window, self._cursor, delivered, twins=twins):
                if read.schema is not schema:
                    break  # batches of two schemas cannot be sorted together: read again
                held.add(read.batch)
                if held.size > tuning.SORTED_BYTES:
                    return None
            else:
                return held

    def _sorted(self, window: Window, held: ByWriteTime) -> Iterator[RowsRead]:
        for batch in held.batches(self._config.fetch_size):
            if self._stop.is_set():
                return
            yield RowsRead(self._log.schema, window, batch)

    def _poll(self, end: Micros) -> Part:
        """Deliver undelivered rows, settled or not, of the chunks that are due."""
        window = Window(self._cursor.position, min(written_before(self._clock.now()), end))
        return () if window.is_empty else self._steps.poll(window, self._cursor)

    def _check_read(self, window: Window, *, late: bool = False) -> None:
        """Report rows of a window that may have been lost before they were read.

        If the log was dropped and created again, the whole window may have been read from the new
        log, so the window counts as unread. Call this method before the position moves past the
        window.
        """
        self._log.refresh()
        now, name, logs = self._clock.now(), self._log.schema.base.name, self.ttls.logs
        self._see_ttls(now, window.start)
        if self.ttls.logs != logs:
            self._losses.report(self._cursor, now, name, [window])
        self._losses.check_read(window, self._cursor, now, name, late=late)

    def _see_ttls(self, now: Micros, unread: Micros) -> None:
        """Record the log's TTL and id; rows written at `unread` (µs) or later are still unread."""
        ttls = self.ttls.updated(self._log.schema.base, now, unread)
        self._cursor = evolve(self._cursor, ttls=ttls)

    def _move(self, step: Step, began: Micros, delivered: Delivered | None) -> WindowComplete:
        """Move past the window of a step, and return the window, whose read began at `began`."""
        window, cursor = step.window, self._cursor
        self._steps.undelivered.move_to(window.end)
        moved = evolve(
            cursor,
            position=window.end,
            generations=step.generations,
            marks=self._steps.undelivered.marks,
        )
        if moved.late is not None and delivered is not None:
            late = moved.late.after(window.end, delivered.began, began)
            moved = evolve(moved, late=late.knowing(delivered.names))
        if self._report is not None:
            self._report.window_read(window.end, self._clock.now())
        self._cursor = moved
        return self._complete(window)

    def _complete(
        self, window: Window, *, late: bool = False, undelivered: int = 0
    ) -> WindowComplete:
        return WindowComplete(
            self._log.schema,
            window,
            self.with_table_facts(self._cursor),
            late=late,
            queries=self._steps.queries,
            undelivered=undelivered,
        )

    def _delivered(self, began: Micros) -> Delivered | None:
        """Return what collects the doubtful rows of a read that begins at `began` (µs)."""
        late = self._cursor.late
        return None if late is None else Delivered(late.began(began), late.confidence)

    def _watch_for_late_rows(self, now: Micros, ttl: int) -> None:
        """Begin the search for late rows, unless they are ignored.

        The search covers rows written before the start only if an earlier run of this reader read
        that part of the log, and late rows are delivered.
        """
        mode, cursor = self._config.late_rows, self._cursor
        if mode is not LateRowsMode.DELIVER and cursor.late is not None:
            self._cursor = cursor = evolve(cursor, late=None)
        if mode is LateRowsMode.IGNORE or (mode is None and not ttl):
            return
        if not ttl:
            raise ConfigurationError(
                "late_rows",
                self._config.late_rows,
                f"the log of {self._log.schema.base.name} keeps rows forever, but only a TTL "
                "shows when a row arrived: set the table's cdc ttl, or 'ignore' late rows",
            )
        if mode is LateRowsMode.DELIVER:
            late = cursor.late or LateState.begin(cursor.position, now, self._confidence)
            self._cursor = evolve(cursor, late=late.read_with(self._confidence))
            self._late_at_start = self._late_at_start or late
        elif self._report is None:
            horizon = duration_micros(self._config.late_horizon)
            self._report = LateReport(cursor.position, now, horizon, self._confidence)

    def _search(self) -> Iterator[Part]:
        """Search for late rows, and deliver or count them, if the interval has passed."""
        now, late, report = self._clock.now(), self._cursor.late, self._report
        if self._stop.is_set():
            return
        if late is not None and is_search_due(late.searched_at, now):
            yield from self._deliver_late_rows()
        if report is not None and is_search_due(report.counted_at, now):
            yield self._count_late_rows(report)

    def _deliver_late_rows(self) -> Iterator[Part]:
        sweep = self._steps.sweep(self._cursor)
        yield self._steps.late_rows(sweep, self._cursor)
        self._cursor = evolve(self._cursor, late=sweep.done)
        yield (self._complete(sweep.window, late=True),)

    def _count_late_rows(self, report: LateReport) -> Part:
        log, now = self._sample.at(self._steps.planner.timeline), self._clock.now()
        window, rows = report.count(log, self._cursor.position, self.ttls, now)
        logger.info("late_rows_sought", rows=rows)
        if not rows:
            return ()
        logger.warning(
            "late_rows",
            table=str(self._log.schema.base.name),
            rows=rows,
            window=str(window),
            remedy="they were not delivered: give late_rows 'deliver', or a longer "
            "confidence_window",
        )
        return (self._complete(window, late=True, undelivered=rows),)

    def _pause(self, began: Micros) -> None:
        """Sleep for the rest of the poll interval of a pass that began at `began` (µs)."""
        interval = self._poll_interval
        if self._is_eager:
            interval = self._steps.polls.until_next(began)
        took = max(0, self._clock.now() - began)  # the clock may have been set back
        if took < interval:
            self._clock.sleep(interval - took, self._stop)
