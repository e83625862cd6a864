"""Follows one table's log, window by window, across new generations and schema changes.

The state is a position P: every row written before P has been delivered. A pass reads the
clock, then the schema and the generations, and then the log up to the clock's time minus the
confidence window. Rows and generations have therefore had the confidence window to become visible.
No barrier between generations is needed, because a row's timestamp determines which generation's
streams contain the row. Within a window, each generation is read for the time in which it is in
force, older generations first.

A generation that appears when P is past its start is read from its start up to P. None of its rows
has been delivered, and apart from strays, the previous generation's streams contain no rows written
in that time. Therefore no row is lost or repeated if a generation is announced late.

If late rows are delivered, each window is also searched for strays (see `reading.late.strays`). The
streams of a neighboring generation are searched up to one late horizon before and after the time in
which that generation is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa
from attrs import evolve, frozen

from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, FOREVER, Clock, Micros, duration_micros
from cdc_reader.config import DeliveryMode, LateRowsMode, ReadConfig, poll_interval
from cdc_reader.errors import ConfigurationError, StoppedError
from cdc_reader.reading import tuning
from cdc_reader.reading.deduplication import Deduplicator, keys, leave_out, leave_out_keys
from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete
from cdc_reader.reading.expiry import OnLoss
from cdc_reader.reading.fetch import CurrentLog
from cdc_reader.reading.horizon import SettledHorizon, settled_before, written_before
from cdc_reader.reading.late.report import LateReport, SampledKeys
from cdc_reader.reading.late.rows import LateRows, Sweep, arrived_since
from cdc_reader.reading.late.strays import Strays
from cdc_reader.reading.planner import Planner
from cdc_reader.reading.ports import LogTable
from cdc_reader.reading.progress import Checkpoint, RowKey
from cdc_reader.reading.retry import Stop
from cdc_reader.reading.window_reader import ByWriteTime, Choose, WindowReader
from cdc_reader.streams.polling import PollSchedule
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.window import Window, WindowSize

logger = get_logger(__name__)

_REFRESH_INTERVAL = 1_000_000
"""µs between refreshes of the schema and the generations, even if rows are polled more often.

Between two refreshes, only chunks of streams that are due are polled, and the position does not
move. A new column is noticed when its first row is read.
"""
_SHARED = 500_000
"""Passes of several tables that begin within this time, in µs, see the cluster as of one moment."""
_TAIL = 2_000_000
"""Most polls read only rows up to this age, in µs; a chunk's older rows are read once a second."""


@frozen
class _IdleWindow:
    """An empty window that was read between `began` and `read_at`, in µs."""

    window: Window
    began: Micros
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
        self._log = CurrentLog(table, start)
        self._is_delivering_late = config.late_rows is LateRowsMode.DELIVER
        self._late_horizon = duration_micros(config.late_horizon)
        reach = self._late_horizon if self._is_delivering_late else 0
        self._planner = Planner(table.generations, shard, reach)
        self._strays = Strays(self._log, self._planner, clock)
        self._keys = SampledKeys(table, start, shard, clock)
        self._reader = WindowReader(self._log, self._planner, clock, config)
        self._horizon = SettledHorizon(
            table, self._planner, config, start, on_loss, at_oldest=at_oldest
        )
        self._size = WindowSize(duration_micros(config.window), tuning.LONGEST_WINDOW)
        self._is_eager = config.delivery is DeliveryMode.EAGER
        self._is_ordered = config.delivery is DeliveryMode.ORDERED
        self._confidence = duration_micros(config.confidence_window)
        self.ttls = start.ttls
        """The log's TTL over time; may be empty until the schema is read for the first time."""
        self.first: Micros | None = start.position if start.position > BEGINNING else None
        """The position where reading began, in µs; None until the log's oldest row is known."""
        self._position = start.position
        self._marks = dict(start.marks)
        self._deduplicator = Deduplicator()
        self._poll_interval = poll_interval(config)
        self._polls = PollSchedule(self._poll_interval)
        interval = _REFRESH_INTERVAL if self._is_eager else self._poll_interval
        self._shared = min(_SHARED, interval // 2)
        self._is_idle = False
        """True if the last window that ended at the horizon was empty."""
        self._idle: _IdleWindow | None = None
        self._start = start
        self._floor = start.position if start.generation is None else BEGINNING
        self._late: LateRows | None = None
        self._with_twin = frozenset[RowKey]()
        """Keys of strays that were left out since the last sweep, because they have a twin."""
        self._report: LateReport | None = None
        self._stopped = stop or Stop()

    def follow(self, end: Micros = FOREVER) -> Iterator[Delivery]:
        """Deliver every row written before `end` (µs), unless `stop` is called first.

        Blocks between passes. Raises errors of `cdc_reader.errors`; transient errors are raised
        only after the retry deadline.
        """
        with suppress(StoppedError):
            for delivery in self._follow(end):
                self._stopped.check()
                yield delivery

    def with_table_facts(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with the table's id and the part of the TTL history it needs."""
        position, late_scan_at = checkpoint.position, checkpoint.late_scan_at
        since = position if late_scan_at is None else min(position, late_scan_at)
        return evolve(self._log.with_table(checkpoint), ttls=self.ttls.after(since))

    def stop(self) -> None:
        """End `follow` immediately, without waiting for a retry, response or pause. Thread-safe."""
        self._stopped.set()

    def _follow(self, end: Micros) -> Iterator[Delivery]:
        refreshed = moment = horizon = BEGINNING
        while not self._stopped.is_set():
            began = self._clock.now()
            is_fresh = self._is_eager and 0 <= began - refreshed < _REFRESH_INTERVAL
            if not is_fresh:
                is_last = settled_before(began, self._confidence) >= end
                moment = self._log.moment(began, 0 if is_last else self._shared)
                refreshed, horizon = began, self._refresh(began, moment, end)
            if horizon > BEGINNING:
                yield from self._poll(end) if is_fresh else self._pass(moment, horizon, end)
            if self._position >= end:
                return
            self._pause(began)

    def _refresh(self, now: Micros, moment: Micros, end: Micros) -> Micros:
        """Refresh the schema, TTLs and generations as of `moment`, and return the horizon then."""
        self._log.refresh(moment)
        base = self._log.schema.base
        self.ttls = self.ttls.updated(base, now, self._position)
        horizon = self._horizon.refresh(moment, self._position, end, base.name, self.ttls)
        if horizon > BEGINNING:
            self._position = max(self._position, self._horizon.oldest)
            self.first = self._position if self.first is None else self.first
            self._watch_for_late_rows(now, base.cdc.ttl)
        return horizon

    def _pass(self, moment: Micros, horizon: Micros, end: Micros) -> Iterator[Delivery]:
        yield from self._leave_idle(moment)
        yield from self._catch_up()
        settled = min(horizon, end)
        if not self._is_eager or settled - self._position > self._size.base:
            yield from self._settle(settled, is_last=settled == end)
        if self._is_eager:
            yield from self._settle_polled(settled, end)
            yield from self._poll(end)
        yield from self._sweep()

    def _catch_up(self) -> Iterator[Delivery]:
        """Read generations that appeared after the position had passed their start.

        A single `WindowComplete` follows all of them. A checkpoint records only the newest
        generation, so it must not be saved while an older generation is still unread.
        """
        missed = self._horizon.missed(self._position + self._planner.reach)
        if not missed:
            return
        fresh = frozenset(span.start for span in missed)
        earliest = self._floor if self._late is None else min(self._floor, self._late.start)
        for span in missed:
            window = Window(max(span.start, earliest), min(span.end, self._position))
            if not window.is_empty:
                logger.warning("generation_announced_late", start=span.start)
                seen = self._strays.seen(window, fresh)
                yield from self._read(window, late=True, seen=seen)
                self._check_read(Window(max(window.start, self._floor), window.end), late=True)
        since = min(missed[0].start, self._position) - self._planner.reach
        window = Window(max(since, earliest), self._position)
        yield from self._read_strays(window, fresh)
        if not self._stopped.is_set():
            yield self._complete(window, late=True)

    def _leave_idle(self, moment: Micros) -> Iterator[Delivery]:
        """Move past the window that the last pass found empty.

        That the log was not dropped meanwhile is known by what this pass asked for, if it asked
        after the window was read.
        """
        idle, self._idle = self._idle, None
        if idle is None:
            return
        if moment >= idle.read_at:
            name = self._log.schema.base.name
            self._horizon.check_read(idle.read_at, idle.window, name, self.ttls)
        else:
            self._check_read(idle.window)
        yield self._move_to(idle.window.end, idle.began)

    def _settle(self, end: Micros, *, is_last: bool) -> Iterator[Delivery]:
        """Read window after window up to `end`, without pauses.

        A reader that is behind also searches for late rows between windows, before its position is
        too far ahead of them. The search waits until the rows covered by the start's marks have
        been read, because only then does it find late rows that the marks exclude.

        A window that ends at `end` and is empty, like the last window before it, costs no further
        query: the next pass moves past it, unless `is_last` is True.
        """
        while self._position < end and not self._stopped.is_set():
            if not self._marks:
                yield from self._sweep()
            window = self._next_window(end)
            began = self._clock.now()
            held = self._held(window) if self._is_ordered else None
            if held is not None and held.size > tuning.SORTED_BYTES:
                if window.length > 1:
                    self._size = self._size.below(window.length)
                    continue
                held = None  # rows of a single microsecond need no sorting
            yield from self._read(window) if held is None else self._sorted(window, held)
            yield from self._read_strays(window)
            if self._stopped.is_set():
                return
            crowded = held is None or held.size > tuning.SORTED_BYTES // 4
            self._size = self._size.after(empty=not self._reader.rows, crowded=crowded)
            logger.debug("window_read", window=str(window), rows=self._reader.rows)
            was_idle, self._is_idle = self._is_idle, window.end == end and not self._reader.rows
            if was_idle and self._is_idle and not is_last and self._may_wait:
                self._idle = _IdleWindow(window, began, self._clock.now())
                return
            self._check_read(window)
            yield self._move_to(window.end, began)

    @property
    def _may_wait(self) -> bool:
        """True if the next pass may move past a window instead of this one.

        Not if strays were read, because they are delivered only once if the position moves.
        """
        return not self._is_eager and self._late is None

    def _check_read(self, window: Window, *, late: bool = False) -> None:
        """Report rows of a window that may have been lost before they were read.

        If the log was dropped and created again, the whole window may have been read from the new
        log, so the window counts as unread. Call this method before the position moves past the
        window.
        """
        self._log.refresh()
        now, base = self._clock.now(), self._log.schema.base
        before, self.ttls = self.ttls, self.ttls.updated(base, now, window.start)
        if self.ttls.logs != before.logs:
            self._horizon.report(now, window.start, base.name, self.ttls)
        self._horizon.check_read(now, window, base.name, self.ttls, late=late)

    def _held(self, window: Window) -> ByWriteTime:
        """Collect the window's rows; stop early if they take too much memory."""
        while True:
            schema, held = self._log.schema, ByWriteTime()
            for rows, _ in self._rows(window):
                if self._log.schema is not schema:
                    break  # batches of two schemas cannot be sorted together: read again
                held.add(rows)
                if held.size > tuning.SORTED_BYTES:
                    return held
            else:
                return held

    def _sorted(self, window: Window, held: ByWriteTime) -> Iterator[Delivery]:
        for batch in held.batches(self._config.fetch_size):
            if self._stopped.is_set():
                return
            yield RowsRead(self._log.schema, window, batch)

    def _next_window(self, end: Micros) -> Window:
        """Choose the next window, up to `end`.

        The time before the first generation is one window, because it contains no rows. If strays
        are read, no window crosses into another generation: strays are delivered after the window's
        other rows, and the rows of each stream must be delivered in order.
        """
        first, *later = self._planner.timeline.starts
        if self._position < first:
            return Window(self._position, min(first, end))
        if self._planner.reach:
            end = min([end, *(start for start in later if start > self._position)])
        return self._size.next_window(self._position, end)

    def _poll(self, end: Micros) -> Iterator[Delivery]:
        """Deliver undelivered rows, settled or not, of the chunks that are due."""
        now = self._clock.now()
        window = Window(self._position, min(written_before(now), end))
        if window.is_empty:
            return
        newest = min(now, end) - _TAIL
        yield from self._read(window, choose=partial(self._polls.due, now=now, newest=newest))

    def _settle_polled(self, settled: Micros, end: Micros) -> Iterator[Delivery]:
        """Move the position if a whole interval, or the time up to `end`, has settled."""
        began, window = self._clock.now(), Window(self._position, settled)
        is_worth = window.length >= tuning.SETTLE_INTERVAL
        if is_worth or (not window.is_empty and settled == end):
            yield from self._read(window)
            yield from self._read_strays(window)
            if not self._stopped.is_set():
                self._check_read(window)
                yield self._move_to(settled, began)

    def _read(
        self,
        window: Window,
        *,
        late: bool = False,
        seen: frozenset[RowKey] = frozenset(),
        choose: Choose | None = None,
    ) -> Iterator[Delivery]:
        """Deliver the window's undelivered rows, except rows whose key is in `seen`.

        `choose` selects which of the window's tasks to read; by default, all are read.
        """
        for rows, is_behind in self._rows(window, late=late, seen=seen, choose=choose):
            yield RowsRead(self._log.schema, window, rows, late=late or is_behind)

    def _rows(
        self,
        window: Window,
        *,
        late: bool = False,
        seen: frozenset[RowKey] = frozenset(),
        choose: Choose | None = None,
    ) -> Iterator[tuple[pa.RecordBatch, bool]]:
        has_expiry, is_checked = self._late is not None, False
        for task, batch in self._reader.read(window, choose, with_expiry=has_expiry):
            may_lack = not is_checked or self._has_unsettled(batch)
            if may_lack and self._log.refresh(of_all=True):
                continue  # the batch may lack a new column: `read` yields it again
            is_checked = True
            rows = self._unknown_at_start(batch) if late else batch
            for new in self._new(leave_out_keys(rows, seen), behind=late):
                if self._stopped.is_set():
                    return
                self._polls.found_rows(task, self._clock.now())
                yield new

    def _read_strays(
        self, window: Window, fresh: frozenset[int] | None = None
    ) -> Iterator[Delivery]:
        """Deliver the window's strays, of all generations or only of those in `fresh`.

        `fresh` contains the starts of generations that have not been read before.
        """

        def read() -> list[pa.RecordBatch]:
            found = list(self._strays.read(window, fresh))
            single = list(self._strays.single(found, fresh or frozenset()))
            self._with_twin |= _keys_of(found) - _keys_of(single)
            return single

        if self._stopped.is_set() or not self._planner.reach:
            return
        found = self._all_of(read)
        for batch in found:
            rows = batch if fresh is None else self._unknown_at_start(batch)
            for new, _ in self._new(rows, behind=fresh is not None):
                if self._stopped.is_set():
                    return
                yield RowsRead(self._log.schema, window, new, late=True)

    def _unknown_at_start(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out rows that are before a chosen start and had arrived when it was chosen.

        If the log is followed after a snapshot, the snapshot contains these rows.
        """
        at = self._start.late_scan_at
        if self._late is None or at is None or self._floor == BEGINNING:
            return batch
        return arrived_since(batch, at, self._floor, self.ttls, self._clock.now())

    def _all_of(self, read: Callable[[], Sequence[pa.RecordBatch]]) -> Sequence[pa.RecordBatch]:
        """Return all batches that `read` returns, with the columns of the newest schema."""
        while True:
            schema, found = self._log.schema, read()
            if not found or not (self._log.refresh(of_all=True) or schema is not self._log.schema):
                return found

    def _has_unsettled(self, batch: pa.RecordBatch) -> bool:
        """Return whether the batch has rows to deliver that may not have settled."""
        return self._is_eager and self._deduplicator.has_new(leave_out(batch, self._marks))

    def _new(self, batch: pa.RecordBatch, *, behind: bool) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Yield the rows of a batch that have not been delivered before.

        Leaves out rows that the start's marks cover and, with eager delivery, rows that an earlier
        poll delivered. Each batch comes with a flag, which is True if rows with higher keys were
        delivered from the same streams before.
        """
        rows = leave_out(batch, self._marks)
        if self._late is not None:
            rows = self._late.delivered(rows, self.ttls, self._clock.now(), behind=behind)
        if self._is_eager:
            yield from self._deduplicator.new(rows)
        elif rows.num_rows:
            yield rows, False

    def _move_to(self, position: Micros, began: Micros) -> WindowComplete:
        """Move to `position`, and return the completed window, whose read started at `began`."""
        window, self._position = Window(self._position, position), position
        if self._late is not None:
            self._late.window_read(position, began)
        if self._report is not None:
            self._report.window_read(position, self._clock.now())
        self._marks = {s: mark for s, mark in self._marks.items() if mark.reaches(position)}
        self._deduplicator.forget(position)
        return self._complete(window)

    def _complete(
        self, window: Window, *, late: bool = False, undelivered: int = 0
    ) -> WindowComplete:
        checkpoint = Checkpoint(
            self._position,
            self._horizon.newest,
            self._marks,
            None if self._late is None else self._late.late_scan_at,
        )
        return WindowComplete(
            self._log.schema,
            window,
            self.with_table_facts(checkpoint),
            late=late,
            queries=self._reader.queries + self._strays.queries,
            undelivered=undelivered,
        )

    def _watch_for_late_rows(self, now: Micros, ttl: int) -> None:
        """Set up the search for late rows, unless they are ignored.

        The search covers rows written before the start only if an earlier run of this reader read
        that part of the log, and late rows are delivered.
        """
        mode = self._config.late_rows
        if mode is LateRowsMode.IGNORE or (mode is None and not ttl):
            return
        if not ttl:
            raise ConfigurationError(
                "late_rows",
                self._config.late_rows,
                f"the log of {self._log.schema.base.name} keeps rows forever, but only a TTL "
                "shows when a row arrived: set the table's cdc ttl, or 'ignore' late rows",
            )
        if not self._is_delivering_late:
            if self._report is None:
                self._report = LateReport(self._position, now, self._late_horizon, self._confidence)
        elif self._late is None:
            position, marks = self._position, self._start.marks
            late_scan_at = self._start.late_scan_at
            start = position if late_scan_at is None else BEGINNING
            if late_scan_at is None:
                late_scan_at = BEGINNING if marks else now
            self._late = LateRows(start, position, late_scan_at, self._confidence, marks)

    def _sweep(self) -> Iterator[Delivery]:
        """Search for late rows, and deliver or count them, if the interval has passed."""
        if self._stopped.is_set():
            return
        due = self._clock.now() - tuning.LATE_INTERVAL
        if self._late is not None and self._late.late_scan_at <= due:
            yield from self._deliver_late_rows(self._late)
        if self._report is not None and self._report.counted_at <= due:
            yield from self._count_late_rows(self._report)

    def _deliver_late_rows(self, late: LateRows) -> Iterator[Delivery]:
        """Late rows are few, so they are collected before the first of them is delivered."""
        sweep = late.sweep(self._position, self._late_horizon, self._clock.now())
        found = self._all_of(lambda: list(self._late_rows(sweep)))
        self._with_twin = frozenset()
        logger.info("late_rows_sought", rows=sum(batch.num_rows for batch in found))
        yield from (RowsRead(self._log.schema, sweep.window, late, late=True) for late in found)
        yield self._complete(sweep.window, late=True)

    def _count_late_rows(self, report: LateReport) -> Iterator[Delivery]:
        log, now = self._keys.at(self._planner.timeline), self._clock.now()
        window, rows = report.count(log, self._position, self.ttls, now)
        logger.info("late_rows_sought", rows=rows)
        if rows:
            self._warn_of_late_rows(rows, window)
            yield self._complete(window, late=True, undelivered=rows)

    def _warn_of_late_rows(self, rows: int, window: Window) -> None:
        logger.warning(
            "late_rows",
            table=str(self._log.schema.base.name),
            rows=rows,
            window=str(window),
            remedy="they were not delivered: give late_rows 'deliver', or a longer "
            "confidence_window",
        )

    def _late_rows(self, sweep: Sweep) -> Iterator[pa.RecordBatch]:
        """Yield the late rows. Strays come last, although they are read first.

        A twin that arrived after its stray was delivered is left out. If the stray was left out,
        because the twin had arrived, the twin is late if its stream had been read before.
        """

        def late(batch: pa.RecordBatch) -> pa.RecordBatch:
            return sweep.late(batch, self.ttls, self._clock.now())

        strays, delivered = self._strays.split(sweep.window, late)
        for batch in self._reader.read_again(sweep.window):
            rows = leave_out_keys(late(batch), delivered - self._with_twin)
            if rows.num_rows:
                yield rows
        yield from self._strays.single(strays)

    def _pause(self, began: Micros) -> None:
        """Sleep for the rest of the poll interval of a pass that began at `began` (µs)."""
        interval = self._polls.until_next(began) if self._is_eager else self._poll_interval
        took = max(0, self._clock.now() - began)  # the clock may have been set back
        if took < interval:
            self._clock.sleep(interval - took, self._stopped)


def _keys_of(batches: Iterable[pa.RecordBatch]) -> frozenset[RowKey]:
    return frozenset(key for batch in batches for _, key in keys(batch))
