"""Computes the horizon, up to which rows have settled and all generations are announced.

A read that does not wait for rows to settle extends to `written_before` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from attrs import evolve

from cdc_reader._log import get_logger
from cdc_reader._time import (
    BEGINNING,
    FOREVER,
    Clock,
    Micros,
    duration_micros,
    format_timestamp,
)
from cdc_reader.config import DataLossMode, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.reading import tuning
from cdc_reader.reading.expiry import LossReporter, OnLoss, TtlHistory, since_created
from cdc_reader.reading.planner import Planner
from cdc_reader.reading.ports import GenerationSource, LogTable
from cdc_reader.reading.progress import Checkpoint
from cdc_reader.reading.retry import Stop, sleep
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window

log = get_logger(__name__)

_LEAD = 60_000_000
"""µs by which a write time may be ahead of the clock.

The server accepts timestamps up to 5 s ahead of its clock, and the nodes' clocks differ."""


def settled_before(now: Micros, confidence: int) -> Micros:
    """Return the write time before which rows have settled: `confidence` µs before `now`."""
    return now - confidence


def written_before(now: Micros) -> Micros:
    """Return a time later than the write time of any row written by `now`, settled or not."""
    return now + _LEAD


def warn_of_future(start: Micros, now: Micros, table: TableName) -> None:
    """Warn if `start` (µs) is later than any write time; its year or a clock may be wrong."""
    if written_before(now) < start < FOREVER:
        log.warning("start_in_the_future", table=str(table), start=format_timestamp(start))


def begin_following(table: LogTable, now: Micros, start: Micros) -> Checkpoint:
    """Return the checkpoint, as of `now` (µs), from which to follow the log from `start` (µs).

    The checkpoint contains the table's id and TTL. If it is saved before anything is read, a later
    run can detect that the table was recreated, or that rows expired in the meantime. To make this
    possible, a start at BEGINNING is replaced by the oldest position worth reading from, if there
    is a generation already.
    """
    base = table.schema().base
    ttls = TtlHistory().updated(base, now, start)
    starts = table.generations.timestamps() if start == BEGINNING else ()
    if starts:
        start = _oldest(starts, ttls, now)
    return Checkpoint(start, table_id=base.id, ttls=ttls.after(start), table=base.name)


def _oldest(starts: Collection[Micros], ttls: TtlHistory, now: Micros) -> Micros:
    """Return the earliest position worth reading from; no rows exist before it."""
    return max(min(starts), ttls.oldest_kept(now))


def lost_since(start: Checkpoint, now: Micros, mode: DataLossMode) -> Window:
    """Return the span of write times, from `start` on, whose rows are gone by `now` (µs).

    A reader that reports a loss must be certain of it. A reader that takes a new snapshot after a
    loss, according to `mode`, must not overlook a loss, so rows that may have expired, or soon
    will, count as well. If the position of `start` was chosen rather than reached by reading, it
    may be before the log's creation. The time before the creation is then excluded.
    """
    is_cured = mode is DataLossMode.RESNAPSHOT
    lost = (start.ttls.endangered if is_cured else start.ttls.lost)(start.position, now)
    if lost.is_empty or start.generation is not None:
        return lost
    return since_created(lost, start.ttls.created, now)


class SettledHorizon:
    """Checks the generations before each pass, and tracks which of them are accounted for.

    A generation is accounted for once its rows before the position have been delivered.
    """

    def __init__(
        self,
        table: LogTable,
        planner: Planner,
        config: ReadConfig,
        start: Checkpoint,
        on_loss: OnLoss | None = None,
        *,
        at_oldest: bool = False,
    ) -> None:
        self.oldest = BEGINNING
        """The earliest position worth reading from, in µs."""
        self._table = table
        self._planner = planner
        self._config = config
        self._start = start
        is_stored = start.generation is not None or start.table_id is not None
        self._is_resumed = is_stored and not at_oldest
        self._at_oldest = at_oldest or start.position == BEGINNING
        self._accounted: set[int] | None = None
        # What is stored later begins later, unless it began before it was stored: then it is
        # announced late, and read from its start.
        self._gate = PublicationGate(
            lambda: table.generations, duration_micros(config.confidence_window)
        )
        self._losses = LossReporter(
            config.data_loss,
            "expected them to be read in time: start over, or set data_loss to 'continue'",
            on_loss,
        )

    @property
    def newest(self) -> Micros | None:
        """The start of the newest generation that is accounted for, or None if there is none."""
        return max(self._accounted or (), default=None)

    def refresh(
        self, now: Micros, position: Micros, end: Micros, table: TableName, ttls: TtlHistory
    ) -> Micros:
        """Read the generations and return the horizon, in µs, or BEGINNING while there are none.

        If everything before `end` (µs) has settled, no later refresh finds what this one overlooks.
        All nodes are asked then.

        The caller must read the clock (`now`) before this call, or take the moment of a pass; what
        was asked for since then is used. Every generation that begins before
        the horizon has then had the confidence window to become visible. Raises DataLossError if
        `data_loss` is not ``continue`` and rows since `position` are gone, according to `ttls`.
        """
        settled = settled_before(now, duration_micros(self._config.confidence_window))
        starts = self._planner.refresh(now, of_all=settled >= end).starts
        if not starts:
            return BEGINNING
        if is_first := self._accounted is None:
            warn_of_future(position, now, table)
        if self._account(starts) and position > BEGINNING:
            self.report(now, position, table, ttls)
        if is_first and not self._is_resumed:
            self._losses.begin(position, ttls, now, at_oldest=self._at_oldest)
        if position == BEGINNING:
            self.oldest = _oldest(starts, ttls, now)
        else:
            self.oldest = position
        return min(settled, self._gate.limit(now, starts))

    def check_read(
        self, now: Micros, window: Window, table: TableName, ttls: TtlHistory, *, late: bool = False
    ) -> None:
        """Report which rows of `window` may have expired before they were read.

        `late` is True for a generation that was announced after later windows were read. If a new
        snapshot of the table follows each loss, rows that expire soon count as well.
        """
        if window.start == BEGINNING:
            return
        if self._config.data_loss is DataLossMode.RESNAPSHOT:
            self.report(now, window.start, table, ttls)
            return
        if late:
            self._losses.check_late(window, ttls, now, table)
            return
        is_chosen = self._start.generation is None
        self._losses.check_read(window, ttls, now, table, is_chosen=is_chosen)

    def report(self, now: Micros, position: Micros, table: TableName, ttls: TtlHistory) -> None:
        """Report which rows from `position` (µs) on are gone."""
        at = evolve(self._start, position=position, ttls=ttls)
        lost = lost_since(at, now, self._config.data_loss)
        self._losses.report_unread(lost, table, ttls)

    def missed(self, position: Micros) -> list[Window]:
        """Return the spans of generations that appeared when `position` was past their start.

        Marks these and all other known generations as accounted for. A generation before all of
        those that were known is not new: it stands for sets of streams that the server has removed.
        """
        spans = list(self._planner.timeline.operating())
        accounted = self._accounted or set()
        self._accounted = accounted | {span.start for span in spans}
        oldest = min(accounted, default=BEGINNING)
        later = (span for span in spans if oldest < span.start < position)
        return [span for span in later if span.start not in accounted]

    def _account(self, starts: tuple[Micros, ...]) -> bool:
        """Return whether reading has begun, in this run or in an earlier one.

        Rows that expired before reading began are not a loss. The first call also records which
        generations are accounted for: the generations up to the checkpoint's generation or, if the
        checkpoint has none, all generations that exist.
        """
        if self._accounted is not None:
            return True
        newest = self._start.generation
        self._accounted = {s for s in starts if newest is None or s <= newest}
        return self._is_resumed


def _span(start: Micros, until: Micros) -> dict[str, str]:
    return {"start": format_timestamp(start), "until": format_timestamp(until)}


class PublicationGate:
    """Finds generations whose streams are stored but whose start is not announced yet.

    Readers wait for an unannounced generation until `PUBLICATION_WAIT` after its start. The cluster
    is queried at most once per `pause` (µs).
    """

    def __init__(self, generations: Callable[[], GenerationSource], pause: int = 0) -> None:
        self._generations = generations
        self._patience = tuning.PUBLICATION_WAIT
        self._pause = pause
        self._queried = BEGINNING
        self._pending: frozenset[Micros] = frozenset()

    def limit(self, now: Micros, announced: Collection[Micros] = ()) -> Micros:
        """Return the start of the first unannounced generation to wait for, or FOREVER.

        No reader may read past this time.
        """
        if not 0 <= now - self._queried < self._pause:
            self._refresh(now)
            self._queried = now
        self._pending = self._pending.difference(announced)
        waited_for = (start for start in self._pending if now < start + self._patience)
        return min(waited_for, default=FOREVER)

    def wait(self, window: Window, clock: Clock, stop: Stop) -> None:
        """Wait for unannounced generations that may contain rows of `window`.

        The caller must read the generations afterwards. Logs a warning if rows may be missing
        because a generation is still unannounced. Raises StoppedError if `stop` is set.
        """
        warned_of = FOREVER
        while (start := self.limit(now := clock.now())) < min(window.end, written_before(now)):
            until = start + self._patience
            if start != warned_of:
                log.warning("read_waits_for_generation", **_span(start, until))
            warned_of = start
            sleep(clock, min(tuning.SETTLE_INTERVAL, until - now), stop)
        if self._pending:
            self._warn_of_missing(Window(window.start, min(window.end, written_before(now))))

    def _warn_of_missing(self, window: Window) -> None:
        """Warn about the parts of `window` in which unannounced generations are in force."""
        timeline = Timeline((*self._generations().timestamps(), *self._pending))
        for operates in timeline.touched(window):
            if operates.start in self._pending:
                missing = operates.intersect(window)
                log.warning("generation_not_announced", **_span(missing.start, missing.end))

    def _refresh(self, now: Micros) -> None:
        pending = frozenset(self._generations().unpublished(now))
        for start in sorted(pending - self._pending):
            log.info("generation_half_published", start=start)
        self._pending = pending
