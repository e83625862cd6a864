"""Decides what a micro-batch contains: which step of the log, or how much of a snapshot.

`cdc_reader.reading.advance` decides how far the log may be read, as in Python. Three things can
shorten the step's window, which may become empty:

1. Spark runs a micro-batch for each new offset, so a window is worth one only if it has rows, or is
   long (`EmptyWindows`).
2. It is cut to about the number of rows and bytes that a micro-batch may contain (`RowLimit`).
3. It is cut to the number of strays that an offset can list (`LateWatch`, which also finds the late
   rows that the micro-batch delivers).

While a snapshot is being read, the window is empty: `SnapshotEnd` decides how much of the table the
micro-batch contains. The micro-batch includes the log only if Spark's trigger requests all
available rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from attrs import evolve, frozen

from cdc_reader._time import FOREVER, Clock, Micros, duration_micros
from cdc_reader.cql.schema import LogSchema
from cdc_reader.reading.advance import Limits, Step, View, advance
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations, RowName
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.view import Views
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.shard import MAX_TOKEN
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.offsets.offset import Offset, snapshot_until
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import LONGEST_IDLE, generations_of
from pyspark_scylla_cdc.streaming.idle import EmptyWindows, row_probe
from pyspark_scylla_cdc.streaming.late_rows import LateRows, late_watch
from pyspark_scylla_cdc.streaming.row_limit import within_limits
from pyspark_scylla_cdc.streaming.snapshot_end import SnapshotEnd

SHORTEST_STEP, LONGEST_STEP = 1_000, 1_000_000
"""A step is as long as the confidence window, within these limits, in µs.

A shorter confidence window means that rows are wanted sooner. A longer step means fewer queries of
idle logs.
"""
VIEW_INTERVAL = 1_000_000
"""µs between two reads of the generations while no rows are found."""
ANNOUNCEMENT_INTERVAL = 10_000_000
"""The longest time, in µs, until a generation that was announced late is noticed."""


def limits_of(options: SourceOptions) -> Limits:
    """Return how far a micro-batch may reach according to the options of a query."""
    return Limits(
        options.confidence,
        end=FOREVER if options.ending is None else options.ending,
        longest=FOREVER if options.max_window is None else duration_micros(options.max_window),
        shortest=max(SHORTEST_STEP, min(options.confidence, LONGEST_STEP)),
    )


@frozen
class MicroBatch:
    """The contents of a micro-batch: a step of the log, and the cursor after it.

    `rows` are late rows that the micro-batch delivers as well.
    """

    step: Step
    cursor: Checkpoint
    rows: frozenset[RowName] = frozenset()


class MicroBatches:
    """Decides what each micro-batch of a query contains.

    Queries the cluster only when a micro-batch may be due. Can be pickled until it is first used.
    `on_late_rows` is called with the number of late rows that are found but only reported.
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: LogSchema,
        clock: Clock,
        on_late_rows: Callable[[int], None],
    ) -> None:
        self._options = options
        self._schema = schema
        self._limits = limits_of(options)
        self._views = Views(partial(generations_of, options), VIEW_INTERVAL)
        probe = partial(row_probe, options, schema)
        self._idle = EmptyWindows(probe, self._limits.shortest, LONGEST_IDLE)
        self._late = late_watch(options, schema, clock, on_late_rows)
        self._snapshot = SnapshotEnd(options, schema)

    def finish(self, now: Micros) -> None:
        """Let the query end when it has read the rows available at `now`.

        The generations of their time are asked for at all nodes, because no later micro-batch of
        this run would read those that were overlooked.
        """
        self._views.visible(now, of_all=True)
        self._limits = evolve(self._limits, end=self._limits.settled(now))
        self._late.finish(now)

    def settled(self, now: Micros) -> Micros:
        """Return the write time up to which the log may be read at `now`."""
        return self._limits.settled(now)

    def next(
        self, since: Offset, now: Micros, ttls: Callable[[], TtlHistory], *, limited: bool
    ) -> MicroBatch:
        """Return the micro-batch after the offset `since`; it may be empty.

        `ttls` returns the log's TTL over time. If `limited` is False, the micro-batch contains all
        settled rows, because Spark's trigger requests them.
        """
        if since.is_before_snapshot and limited and self._snapshot.is_limited:
            return self._of_snapshot(since, ttls)
        limits = evolve(self._limits, reach=self._late.reach)
        if not limited:
            limits = evolve(limits, longest=FOREVER)
        cursor, step = since.cursor, self._step(since, now, limits, limited=limited)
        if limited:
            step = self._within_limits(step)
        late = self._late_rows(cursor, step, ttls)
        step = step.until(late.end)
        known = step.generations if cursor.has_read or not step.window.is_empty else None
        moved = evolve(
            cursor,
            position=step.window.end,
            generations=known,
            late=late.state,
            snapshot=None,
        )
        return MicroBatch(step, moved, late.rows)

    def _of_snapshot(self, since: Offset, ttls: Callable[[], TtlHistory]) -> MicroBatch:
        """Return a micro-batch of the table alone; late rows are delivered after the snapshot."""
        cursor, done = since.cursor, self._snapshot.next(since.done)
        step, late = _nothing(cursor, self._views.seen), cursor.late
        if late is None:
            late = self._late_rows(cursor, step, ttls).state
        progress = snapshot_until(done, cursor.position) if done < MAX_TOKEN else None
        return MicroBatch(step, evolve(cursor, late=late, snapshot=progress))

    def _step(self, since: Offset, now: Micros, limits: Limits, *, limited: bool) -> Step:
        """Return the step that has settled, with an empty window if it is not worth it."""
        position, settled = since.position, limits.settled(now)
        is_due = limits.is_due(position, settled)
        if is_due and limited and not since.is_before_snapshot:
            has_caught_up = settled - position <= limits.longest and settled < limits.end
            is_due = not has_caught_up or self._is_worth(Window(position, settled), now)
        if is_due:
            return advance(since.cursor, self._views.next(now), limits)
        if not since.cursor.has_read:
            return _nothing(since.cursor, self._views.seen)
        view = View(now, self._views.recent(now, ANNOUNCEMENT_INTERVAL))
        return advance(since.cursor, view, limits).until(position)

    def _is_worth(self, window: Window, now: Micros) -> bool:
        """Return whether a settled window is worth a micro-batch."""
        if self._idle.is_long(window):
            return True
        return self._idle.has_rows(window, self._views.recent(now, VIEW_INTERVAL))

    def _within_limits(self, step: Step) -> Step:
        if step.window.is_empty or (self._options.max_rows or self._options.max_bytes) is None:
            return step
        end = within_limits(self._options, self._schema, step.timeline, step.window)
        return step.until(end)

    def _late_rows(
        self, cursor: Checkpoint, step: Step, ttls: Callable[[], TtlHistory]
    ) -> LateRows:
        return self._late.next(lambda: evolve(cursor, ttls=ttls()), cursor, step)


def _nothing(cursor: Checkpoint, visible: Timeline) -> Step:
    """Return the step from a cursor to itself."""
    known = cursor.generations or KnownGenerations(cursor.position, ())
    return Step(
        Window(cursor.position, cursor.position), known, Timeline(known.with_older(visible.starts))
    )
