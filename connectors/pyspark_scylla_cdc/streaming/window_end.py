"""Decides where a micro-batch ends: how far its window of write time reaches.

The window begins at the position of the last offset. Five steps determine its end. Each step after
the first can only shorten the window, which may become empty:

1. It covers the write times that have settled, up to the limit of Spark's trigger
   (`AdvancePolicy`).
2. If it covers all settled write times, but no rows are found, it becomes empty (`Idle`).
3. It ends before a generation that is only partly published (`PublicationGate`).
4. It is cut to about the number of rows and bytes that a micro-batch may contain (`RowLimit`).
5. It is cut to the number of strays that an offset can list (`LateWatch`, which also finds the late
   rows that the micro-batch delivers).

While a snapshot is being read, the window is empty: `SnapshotEnd` decides how much of the table the
micro-batch contains. The micro-batch includes the log only if Spark's trigger requests all
available rows.

A generation that is announced after the position has passed its start is read from its start on, in
addition to the window, which may then be empty (`AnnouncedGenerations`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from attrs import evolve, field, frozen

from cdc_reader._time import Clock, Micros
from cdc_reader.cql.schema import LogSchema
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.horizon import PublicationGate
from cdc_reader.streams.shard import MAX_TOKEN
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.offsets.generations import KnownGenerations
from pyspark_scylla_cdc.offsets.late import Late
from pyspark_scylla_cdc.offsets.offset import Offset
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import LONGEST_IDLE, generations_of, timeline_of
from pyspark_scylla_cdc.streaming.advance import AdvancePolicy
from pyspark_scylla_cdc.streaming.announced import AnnouncedGenerations
from pyspark_scylla_cdc.streaming.idle import GENERATIONS_INTERVAL, Idle
from pyspark_scylla_cdc.streaming.late_watch import Step, late_watch
from pyspark_scylla_cdc.streaming.row_limit import within_limits
from pyspark_scylla_cdc.streaming.row_probe import row_probe
from pyspark_scylla_cdc.streaming.snapshot_end import SnapshotEnd


@frozen
class PlannedBatch:
    """The contents of a micro-batch: its window, and the late-row state `late` of its offset.

    `done` is the token up to which a snapshot has been read. `generations` are the generations
    known at the offset. `missed` maps the start of each late-announced generation to its window
    before the position, which is delivered as well.
    """

    window: Window
    late: Late | None = None
    done: int = MAX_TOKEN
    generations: KnownGenerations | None = None
    missed: Mapping[Micros, Window] = field(factory=dict)


class WindowEnd:
    """Decides where each micro-batch of a query ends.

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
        self._policy = AdvancePolicy.of(options)
        self._announced = AnnouncedGenerations(partial(timeline_of, options), clock)
        self._idle = Idle(
            partial(row_probe, options, schema),
            self._announced.read,
            self._policy.step,
            LONGEST_IDLE,
        )
        self._gate = PublicationGate(
            partial(generations_of, options),
            GENERATIONS_INTERVAL,
        )
        self._late = late_watch(options, schema, clock, self._announced.latest, on_late_rows)
        self._snapshot = SnapshotEnd(options, schema)

    def finish(self, now: Micros) -> None:
        """Let the query end when it has read the rows available at `now`.

        The generations of their time are asked for at all nodes, because no later micro-batch of
        this run would read those that were overlooked.
        """
        generations_of(self._options).all_timestamps()
        self._policy = self._policy.finishing(now)
        self._late.finish(now)

    def settled(self, now: Micros) -> Micros:
        """Return the write time up to which the log may be read at `now`."""
        return self._policy.settled(now)

    def next(
        self, since: Offset, now: Micros, ttls: Callable[[], TtlHistory], *, limited: bool
    ) -> PlannedBatch:
        """Return the micro-batch after the offset `since`; it may be empty.

        `ttls` returns the log's TTL over time. If `limited` is False, the micro-batch contains all
        settled rows, because Spark's trigger requests them.
        """
        if since.is_before_snapshot and limited and self._snapshot.is_limited:
            return self._of_snapshot(since, ttls)
        window = self._settled(since.position, now, limited=limited)
        if limited and not since.is_before_snapshot:
            window = self._with_rows(window, now)
        window = self._published(window, now)
        if limited:
            window = self._within_limits(window)
        return self._with_late_rows(since, self._with_generations(since, window, now), ttls)

    def _of_snapshot(self, since: Offset, ttls: Callable[[], TtlHistory]) -> PlannedBatch:
        """Return a micro-batch of the table alone; late rows are delivered after the snapshot."""
        nothing, late = Window(since.position, since.position), since.late
        if late is None:
            late = self._late.next(Step(nothing, snapshot=True), ttls)
        return PlannedBatch(nothing, late, self._snapshot.next(since.done), since.generations)

    def _settled(self, position: Micros, now: Micros, *, limited: bool) -> Window:
        return Window(position, self._policy.next(position, now, limited=limited))

    def _with_rows(self, window: Window, now: Micros) -> Window:
        if not self._policy.has_caught_up(window.end, now):
            return window
        return evolve(window, end=self._idle.end(window))

    def _published(self, window: Window, now: Micros) -> Window:
        if window.is_empty:
            return window
        return evolve(window, end=max(window.start, min(window.end, self._gate.limit(now))))

    def _within_limits(self, window: Window) -> Window:
        if window.is_empty or (self._options.max_rows or self._options.max_bytes) is None:
            return window
        return evolve(window, end=within_limits(self._options, self._schema, window))

    def _with_generations(self, since: Offset, window: Window, now: Micros) -> PlannedBatch:
        known = self._announced.known(since, now, has_window=not window.is_empty)
        if known is None:
            return PlannedBatch(window)
        missed = known.missed(since.generations, since.position)
        return PlannedBatch(window, generations=known, missed=missed)

    def _with_late_rows(
        self, since: Offset, batch: PlannedBatch, ttls: Callable[[], TtlHistory]
    ) -> PlannedBatch:
        window = batch.window
        step = Step(window, since.late, since.is_before_snapshot, batch.missed)
        late = self._late.next(step, ttls)
        if late is not None and not window.is_empty:
            window = evolve(window, end=late.position)
        return evolve(batch, window=window, late=late)
