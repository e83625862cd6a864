"""Finds the late rows of a streaming query on the driver; see `offsets.late`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Protocol

import pyarrow as pa
from attrs import evolve, field, frozen

from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, FOREVER, Clock, Micros, duration_micros
from cdc_reader.config import LateRowsMode
from cdc_reader.cql.schema import LogSchema
from cdc_reader.reading import tuning
from cdc_reader.reading.deduplication import ROW_KEY, keys, leave_out_keys, rows_named
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.late.report import LateReport
from cdc_reader.reading.late.rows import (
    LONGEST_RESPONSE,
    LateRows,
    Reads,
    RowName,
)
from cdc_reader.reading.late.strays import Strays
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.offsets.late import Late, check_ttl, first_records
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import (
    cluster_for,
    late_rows,
    streams_loader,
)
from pyspark_scylla_cdc.streaming.key_reader import KeyReader

log = get_logger(__name__)

MOST = 1_000
"""The maximum number of a micro-batch's late rows, and of its strays.

Later micro-batches deliver the rest.
"""


@frozen
class Step:
    """The step of a query from one offset to the next: a micro-batch that is being planned.

    `late` is the late-row state of the offset at the start of `window`. If a `snapshot` is still to
    be read, rows that arrive from now on are late rows even if they were written before `window`.
    `missed` maps the start of each late-announced generation to its unread window, which is before
    `window` and is read as well.
    """

    window: Window
    late: Late | None = None
    snapshot: bool = False
    missed: Mapping[Micros, Window] = field(factory=dict)


class LateWatch(Protocol):
    """Decides how a query treats late rows."""

    def finish(self, now: Micros) -> None:
        """Sweep once more, as of `now`, because the query reads only the rows available by then."""
        ...

    def next(self, step: Step, ttls: Callable[[], TtlHistory]) -> Late | None:
        """Return the late-row state of the offset at the end of the window, if it has any.

        If the window has too many strays, the offset is earlier, at the `Late.position` of the
        result. `ttls` returns the log's TTL over time.
        """
        ...


class IgnoringWatch:
    """The watch of a query that ignores late rows."""

    def finish(self, now: Micros) -> None:
        pass

    def next(self, step: Step, ttls: Callable[[], TtlHistory]) -> Late | None:
        del step, ttls
        return None


@frozen
class SweepSettings:
    """How far behind the position a sweep begins, and the confidence window; both in µs."""

    late_horizon: int
    confidence: int


class DeliveringWatch:
    """Delivers late rows, each in one micro-batch."""

    def __init__(
        self, make: Callable[[], KeyReader], settings: SweepSettings, clock: Clock
    ) -> None:
        self._make = make
        self._settings = settings
        self._clock = clock
        self._final = FOREVER
        self._at: tuple[Late | None, int] | None = None
        self._state = Reads(BEGINNING, (BEGINNING,), (BEGINNING,))
        self._ttls = TtlHistory()

    def finish(self, now: Micros) -> None:
        self._final = now

    def next(self, step: Step, ttls: Callable[[], TtlHistory]) -> Late | None:
        now = self._clock.now()
        if self._at != (step.late, step.window.start):
            self._begin(step, now)
        # A sweep would lose the record of which rows of a missed generation arrived before its
        # window was planned.
        is_due = not step.missed and is_time(self._state.reads[0], now, self._final)
        has_rows = step.missed or not step.window.is_empty
        is_empty = not has_rows and not step.snapshot
        if is_empty and not is_due:
            return step.late
        self._ttls = ttls()
        check_ttl(self._ttls.seconds, LateRowsMode.DELIVER)
        reader = self._make()
        found: frozenset[RowName] = frozenset()
        if is_due:
            found = self._sweep(reader, step.window.start, now)
        if is_empty and not found:
            return step.late
        if has_rows:
            found |= self._read(reader, step)
        record = Late(self._state, found)
        self._at = record, record.position
        return record

    def _begin(self, step: Step, now: Micros) -> None:
        position = step.window.start
        self._at = step.late, position
        if step.late is not None:
            self._state = step.late.reads
        else:
            start = BEGINNING if step.snapshot else position
            self._state = Reads(start, (position,), (now,))

    def _sweep(self, reader: KeyReader, position: Micros, now: Micros) -> frozenset[RowName]:
        """Return the late rows behind `position`, at most about `MOST` of them."""
        rows = LateRows.resumed(self._state, self._settings.confidence)
        sweep = rows.sweep(position, self._settings.late_horizon, now)

        def late(batch: pa.RecordBatch) -> pa.RecordBatch:
            return sweep.late(batch, self._ttls, self._clock.now())

        strays = reader.strays(self._settings.late_horizon)
        late_strays, passed = strays.split(sweep.window, late)
        found = list(_single(strays, late_strays))
        for batch in reader.read(sweep.window):
            found += keys(leave_out_keys(late(batch), passed))
        log.info("late_rows_sought", rows=len(found))
        if len(found) <= MOST:
            self._state = rows.state
            return frozenset(found)
        first = first_records(found, MOST)
        self._state = evolve(self._state, known=self._state.known | first)
        return first

    def _read(self, reader: KeyReader, step: Step) -> frozenset[RowName]:
        """Return the strays, and record rows whose computed arrival may be later than now.

        If the window of `step` contains more than `MOST` strays, only its first part is read. Also
        records the rows of missed generations that arrived after their window was read.
        """
        now = self._clock.now()
        strays = reader.strays(self._settings.late_horizon)
        found = list(strays.read(step.window))
        window = _shortened(step.window, found)
        found = _written_in(window, found)
        rows = LateRows.resumed(self._state, self._settings.confidence)
        rows.window_read(window.end, now)
        for batch in found:
            rows.delivered(batch, self._ttls, self._clock.now())
        names = frozenset(_single(strays, found))  # before the read that records their twins
        for batch in reader.read(window):
            rows.delivered(batch, self._ttls, self._clock.now())
        for span in step.missed.values():
            for batch in reader.read(span):
                rows.delivered(batch, self._ttls, self._clock.now(), behind=True)
        self._state = rows.state
        return names


class ReportingWatch:
    """Counts late rows and reports their number; its state is lost when the process ends."""

    def __init__(
        self,
        make: Callable[[], KeyReader],
        settings: SweepSettings,
        clock: Clock,
        on_late_rows: Callable[[int], None],
    ) -> None:
        self._make = make
        self._settings = settings
        self._clock = clock
        self._on_late_rows = on_late_rows
        self._final = FOREVER
        self._report: LateReport | None = None
        self._planned = BEGINNING, BEGINNING

    def finish(self, now: Micros) -> None:
        self._final = now

    def next(self, step: Step, ttls: Callable[[], TtlHistory]) -> Late | None:
        window, now, settings = step.window, self._clock.now(), self._settings
        if self._report is None:
            horizon, confidence = settings.late_horizon, settings.confidence
            self._report = LateReport(window.start, now, horizon, confidence)
        end, planned = self._planned
        if end <= window.start:  # the micro-batch that was planned last is complete
            self._report.window_read(end, min(now, planned + LONGEST_RESPONSE))
        if is_time(self._report.counted_at, now, self._final):
            self._count(self._report, window.start, ttls())
        if not window.is_empty:
            self._planned = window.end, now
        return None

    def _count(self, report: LateReport, position: Micros, ttls: TtlHistory) -> None:
        window, rows = report.count(self._make(), position, ttls, self._clock.now())
        self._on_late_rows(rows)
        if rows:
            remedy = "they were not read: give lateRows 'deliver', or a longer confidenceWindow"
            log.warning("late_rows", rows=rows, window=str(window), remedy=remedy)


def _single(strays: Strays, found: Sequence[pa.RecordBatch]) -> Iterator[RowName]:
    """Yield the names of the strays found, without those whose twin is delivered instead."""
    return chain.from_iterable(map(keys, strays.single(found)))


def _shortened(window: Window, found: Iterable[pa.RecordBatch]) -> Window:
    """Cut the window to at most `MOST` of the rows found, but to no less than 1 µs."""
    written = sorted(key.micros for batch in found for _, key in keys(batch))
    if len(written) <= MOST:
        return window
    return Window(window.start, max(written[MOST], window.start + 1))


def _written_in(window: Window, found: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the rows that were written in the window, without empty batches."""
    names = {name for batch in found for name in keys(batch) if name[1].micros in window}
    return [rows for batch in found if (rows := rows_named(batch, names)).num_rows]


def is_time(late_scan_at: Micros, now: Micros, final: Micros) -> bool:
    """Return True if a sweep is due at `now`, after a sweep at `late_scan_at`.

    `final` is FOREVER for a query that has no end. Any other query ends when it has read the rows
    available at `final`, and sweeps once.
    """
    return now >= late_scan_at + tuning.LATE_INTERVAL if final == FOREVER else late_scan_at < final


def late_watch(
    options: SourceOptions,
    schema: LogSchema,
    clock: Clock,
    generations: Callable[[], Timeline],
    on_late_rows: Callable[[int], None],
) -> LateWatch:
    """Return the watch for the `lateRows` option.

    `generations` returns the generations of the current micro-batch. The watch calls `on_late_rows`
    with the number of late rows that it finds but does not deliver.
    """
    if (mode := late_rows(options, schema.base)) is LateRowsMode.IGNORE:
        return IgnoringWatch()
    settings = SweepSettings(duration_micros(options.late_horizon), options.confidence)
    make = partial(_key_reader, options, schema, generations, clock)
    if mode is LateRowsMode.DELIVER:
        return DeliveringWatch(make, settings, clock)
    sampled = partial(make, tuning.REPORT_QUERIES)
    return ReportingWatch(sampled, settings, clock, on_late_rows)


def _key_reader(
    options: SourceOptions,
    schema: LogSchema,
    generations: Callable[[], Timeline],
    clock: Clock,
    queries: int = FOREVER,
) -> KeyReader:
    columns = tuple(column for column in schema.columns if column.name in ROW_KEY)
    cluster = cluster_for(options)
    source = cluster.source(evolve(schema, columns=columns))
    streams = streams_loader(options, schema.base)
    return KeyReader(source, streams, generations, clock, queries)
