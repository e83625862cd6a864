"""Finds the late rows of a streaming query on the driver; see `planning.late`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa
from attrs import evolve, frozen

from cdc_reader._log import get_logger
from cdc_reader._time import FOREVER, Clock, Micros, duration_micros
from cdc_reader.config import LateRowsMode
from cdc_reader.cql.schema import LogSchema
from cdc_reader.reading import tuning
from cdc_reader.reading.advance import Step, is_search_due
from cdc_reader.reading.cursor import Checkpoint, LateState, RowName
from cdc_reader.reading.deduplication import keys, names_in, rows_named
from cdc_reader.reading.late import search
from cdc_reader.reading.late.keys import KeyReader
from cdc_reader.reading.late.report import LateReport
from cdc_reader.reading.late.rows import LONGEST_RESPONSE, Delivered, Sweep, after_snapshot
from cdc_reader.reading.late.strays import Twins
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.log_plan import key_reader
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import check_ttl, late_rows

log = get_logger(__name__)

MOST = 1_000
"""The maximum number of a micro-batch's late rows, and of its strays.

Later micro-batches deliver the rest.
"""


@frozen
class LateRows:
    """The late rows of a step: the state after it, and the rows that it delivers besides its own.

    If the step's window has too many strays, the step ends at `end`.
    """

    state: LateState | None = None
    rows: frozenset[RowName] = frozenset()
    end: Micros = FOREVER


class LateWatch(Protocol):
    """Decides how a query treats late rows."""

    reach: int
    """The distance from a generation's time at which its streams are searched for strays, in µs."""

    def finish(self, now: Micros) -> None:
        """Search once more, as of `now`, because the query reads only the rows available then."""
        ...

    def next(self, cursor: Callable[[], Checkpoint], since: Checkpoint, step: Step) -> LateRows:
        """Return the late rows of the step from the cursor `since`.

        `cursor` returns the same cursor with the log's current TTL, at the cost of a query.
        """
        ...


class IgnoringWatch:
    """The watch of a query that ignores late rows."""

    reach = 0

    def finish(self, now: Micros) -> None:
        pass

    def next(self, cursor: Callable[[], Checkpoint], since: Checkpoint, step: Step) -> LateRows:
        del cursor, since, step
        return LateRows()


class DeliveringWatch:
    """Delivers late rows, each in one micro-batch."""

    def __init__(
        self, make: Callable[[], KeyReader], horizon: int, confidence: int, clock: Clock
    ) -> None:
        self.reach = horizon
        self._make = make
        self._reader: KeyReader | None = None  # created on first use, after the watch was pickled
        self._confidence = confidence
        self._clock = clock
        self._final = FOREVER
        self._at: tuple[LateState | None, Micros] | None = None
        self._state: LateState | None = None

    def finish(self, now: Micros) -> None:
        self._final = now

    def next(self, cursor: Callable[[], Checkpoint], since: Checkpoint, step: Step) -> LateRows:
        now, in_snapshot = self._clock.now(), since.snapshot is not None
        state = self._begin(since, now)
        # A search would lose the record of which rows of a missed generation arrived before its
        # window was planned.
        is_due = not step.missed and is_search_due(state.searched_at, now, self._final)
        has_rows = step.missed or not step.window.is_empty
        is_empty = not has_rows and not in_snapshot
        if is_empty and not is_due:
            return LateRows(since.late)
        known = evolve(cursor(), late=state)
        check_ttl(known.ttls.seconds, LateRowsMode.DELIVER)
        self._reader = self._reader or self._make()
        reader, found = self._reader.at(step.timeline), frozenset[RowName]()
        if is_due:
            state, found = self._search(reader, known, state, now)
            self._state = state
        if is_empty and not found:
            return LateRows(since.late)
        end = step.window.end
        if has_rows or step.fresh:
            state, names, end = self._read(reader, evolve(known, late=state), state, step)
            found |= names
        self._at, self._state = (state, end), state
        return LateRows(state, found, end)

    def _begin(self, since: Checkpoint, now: Micros) -> LateState:
        """Return the state at a cursor: as the last search left it, or as the cursor has it."""
        at, self._at = self._at, (since.late, since.position)
        if at != self._at or self._state is None:
            begin = LateState.begin if since.snapshot is None else LateState.begin_snapshot
            state = since.late or begin(since.position, now, self._confidence)
            self._state = state.read_with(self._confidence)
        return self._state

    def _search(
        self, reader: KeyReader, cursor: Checkpoint, state: LateState, now: Micros
    ) -> tuple[LateState, frozenset[RowName]]:
        """Return the late rows behind the position: the first `MOST`, in order of write time.

        The last record is returned whole.
        """
        sweep = Sweep.of(state, cursor.position, self.reach, now, self._confidence)
        found = names_in(
            search.late_rows(sweep, reader.strays, reader.read, cursor.ttls, self._clock)
        )
        log.info("late_rows_sought", rows=len(found))
        if len(found) <= MOST:
            return sweep.done, found
        ordered = sorted(found, key=lambda name: (name[1].micros, name[0], name[1].order))
        stream, last = ordered[MOST - 1]
        record = (each for each in ordered[MOST:] if (each[0], each[1].time) == (stream, last.time))
        first = frozenset([*ordered[:MOST], *record])
        at_end = (name for name in first if name[1].micros == last.micros)
        return sweep.done_until(last.micros).knowing(at_end), first

    def _read(
        self, reader: KeyReader, cursor: Checkpoint, state: LateState, step: Step
    ) -> tuple[LateState, frozenset[RowName], Micros]:
        """Return the strays, and record rows whose computed arrival may be later than now.

        If the window of `step` contains more than `MOST` strays, only its first part is read. Also
        records the rows of missed generations that arrived after their window was read.
        """
        now = self._clock.now()
        delivered = Delivered(state.began(now), state.confidence)

        def note(batches: Iterable[pa.RecordBatch], *, behind: bool = False) -> None:
            for batch in batches:
                delivered.note(batch, cursor.ttls, self._clock.now(), behind=behind)

        strays = [*reader.strays.read(step.window)]
        window = _shortened(step.window, strays)
        found = _written_in(window, strays)
        twins = Twins(found)
        note(found)
        for batch in reader.read(window):
            twins.note(batch)
            note([batch])
        names = names_in(reader.strays.without_twins(found, twins))
        for span in step.missed.values():
            note(reader.read(span), behind=True)
        if step.fresh:
            behind = step.behind(cursor, self.reach)
            fresh = [
                after_snapshot(batch, cursor, self._clock.now())
                for batch in reader.strays.read(behind, step.fresh)
            ]
            single = [*reader.strays.fresh_without_twins(fresh, step.fresh)]
            note(single, behind=True)
            names |= names_in(single)
        after = state.after(window.end, delivered.began, now).knowing(delivered.names)
        return after, names, window.end


class ReportingWatch:
    """Counts late rows and reports their number; its state is lost when the process ends."""

    reach = 0

    def __init__(
        self,
        make: Callable[[], KeyReader],
        horizon: int,
        confidence: int,
        clock: Clock,
        on_late_rows: Callable[[int], None],
    ) -> None:
        self._make = make
        self._horizon = horizon
        self._confidence = confidence
        self._clock = clock
        self._on_late_rows = on_late_rows
        self._final = FOREVER
        self._report: LateReport | None = None
        self._planned = 0, 0

    def finish(self, now: Micros) -> None:
        self._final = now

    def next(self, cursor: Callable[[], Checkpoint], since: Checkpoint, step: Step) -> LateRows:
        del since
        window, now = step.window, self._clock.now()
        if self._report is None:
            self._report = LateReport(window.start, now, self._horizon, self._confidence)
        end, planned = self._planned
        if end <= window.start:  # the micro-batch that was planned last is complete
            self._report.window_read(end, min(now, planned + LONGEST_RESPONSE))
        if is_search_due(self._report.counted_at, now, self._final):
            self._count(self._report, step, cursor())
        if not window.is_empty:
            self._planned = window.end, now
        return LateRows()

    def _count(self, report: LateReport, step: Step, cursor: Checkpoint) -> None:
        log_keys = self._make().at(step.timeline)
        window, rows = report.count(log_keys, cursor.position, cursor.ttls, self._clock.now())
        self._on_late_rows(rows)
        if rows:
            remedy = "they were not read: give lateRows 'deliver', or a longer confidenceWindow"
            log.warning("late_rows", rows=rows, window=str(window), remedy=remedy)


def _shortened(window: Window, found: Iterable[pa.RecordBatch]) -> Window:
    """Cut the window to at most `MOST` of the rows found, but to no less than 1 µs."""
    written = sorted(key.micros for batch in found for _, key in keys(batch))
    if len(written) <= MOST:
        return window
    return Window(window.start, max(written[MOST], window.start + 1))


def _written_in(window: Window, found: Iterable[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    """Return the rows that were written in the window, without empty batches."""
    names = {name for batch in found for name in keys(batch) if name[1].micros in window}
    return [rows for batch in found if (rows := rows_named(batch, names)).num_rows]


def late_watch(
    options: SourceOptions, schema: LogSchema, clock: Clock, on_late_rows: Callable[[int], None]
) -> LateWatch:
    """Return the watch for the `lateRows` option.

    The watch calls `on_late_rows` with the number of late rows that it finds but does not deliver.
    """
    if (mode := late_rows(options, schema.base)) is LateRowsMode.IGNORE:
        return IgnoringWatch()
    horizon = duration_micros(options.late_horizon)
    make = partial(key_reader, options, schema, clock, horizon)
    if mode is LateRowsMode.DELIVER:
        return DeliveringWatch(make, horizon, options.confidence, clock)
    sampled = partial(make, queries=tuning.REPORT_QUERIES)
    return ReportingWatch(sampled, horizon, options.confidence, clock, on_late_rows)
