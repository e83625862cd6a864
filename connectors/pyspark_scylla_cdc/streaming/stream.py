"""Streaming reads, which follow the log in micro-batches that Spark can repeat.

Spark's behavior has these consequences:

* Spark calls `initialOffset` several times at the start of a query, and again on a restart before
  the first commit. No checkpoint stores its result, so the offset at the end of the first
  micro-batch also records where the micro-batch began.
* Spark polls `latestOffset` about forty times a second. The method reads the clock, and queries
  the cluster only when a micro-batch may be due (see `micro_batch`).
* A micro-batch may be planned again after a restart, so its partitions depend only on the two
  offsets and the generation tables.
* Spark does not call `stop` on a clean stop, and calls `commit` one micro-batch late. This reader
  depends on neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from attrs import evolve
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, Clock, Micros
from cdc_reader.changes.frames.columns import SNAPSHOT_BEGIN, SNAPSHOT_COMPLETE
from cdc_reader.changes.frames.value_types import decimals_as_text
from cdc_reader.cql.schema import LogSchema, TableState
from cdc_reader.errors import TableAlteredError
from cdc_reader.reading.advance import Step, settled_before, warn_of_future
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations
from cdc_reader.reading.expiry import TtlHistory, first_written
from cdc_reader.reading.loss import lost_since, warn_of_loss
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.ring import TokenRange
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.data_loss import promise_from, report_expired_start, report_loss
from pyspark_scylla_cdc.executors.partitions import read_partition
from pyspark_scylla_cdc.log_plan import delivered_twins, expected, oldest_alive, plan, plan_snapshot
from pyspark_scylla_cdc.offsets.offset import Offset, snapshot_until
from pyspark_scylla_cdc.options.errors import hide_traceback
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.options.table import SchemaMode
from pyspark_scylla_cdc.planning.late import ArrivalFilter
from pyspark_scylla_cdc.planning.partition import LatePartition, SourcePartition, of_one_plan
from pyspark_scylla_cdc.planning.promise import Promise
from pyspark_scylla_cdc.planning.snapshot import MarkPartition
from pyspark_scylla_cdc.sessions import (
    SourceClock,
    check_columns,
    check_resnapshot,
    is_altered,
    state_of,
    still_there,
    timeline_of,
)
from pyspark_scylla_cdc.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark_scylla_cdc.streaming.micro_batch import MicroBatch, MicroBatches
from pyspark_scylla_cdc.unsettled import tell_unread

log = get_logger(__name__)

_ONE_WINDOW = ReadMaxFiles(1)
"""Stands for this source's limit by time: Spark has no type of limit for it.

Spark passes the limit back to the source, which then applies its own.
"""

_FORGOTTEN = (
    "the next micro-batch begins a new snapshot; if the query ends before it is planned, start "
    "over with a new target and a new checkpointLocation"
)
"""What to do about a loss that was found when a micro-batch was planned."""

_AS_TEXT = (
    "give their types in decimalType, as in 'balance: decimal(18, 2)', before data is stored; "
    "'string' for a column keeps its text without this warning"
)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log in micro-batches; positions are write times."""

    def __init__(
        self,
        options: SourceOptions,
        schema: LogSchema,
        names: tuple[str, ...],
        clock: Clock | None = None,
    ) -> None:
        self._options = options
        self._schema = schema
        self._names = names
        self._clock = SourceClock(options, clock)
        self._batches = MicroBatches(options, schema, self._clock, self._count_late_rows)
        self._late_rows = 0
        self._initial: Offset | None = None
        self._lost_in_plan: Window | None = None
        self._has_begun = False
        self._holds = False

    @hide_traceback()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._batches.finish(self._clock.now())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return _ONE_WINDOW

    @hide_traceback()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        if self._initial is None:
            self._initial = self._beginning_at(self._start())
        return self._initial.to_json()

    @hide_traceback()
    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        since, now = self._checked(start), self._clock.now()
        limited = not isinstance(limit, ReadAllAvailable)
        is_first = self._warn_at_start(since, now)
        batch = None if self._holds else self._next(since, now, limited=limited)
        if is_first and batch is not None and not since.is_before_snapshot:
            self._tell_unread(batch.step, now)
        if batch is None or self._is_empty(since, batch) or self._is_altered():
            return start
        return self._end(since, batch, now, limited=limited).to_json()

    def _next(self, since: Offset, now: Micros, *, limited: bool) -> MicroBatch | None:
        """Return the next micro-batch, or None if the query holds its position."""
        try:
            with still_there(self._options, self._schema):
                return self._batches.next(
                    since, now, lambda: since.ttls_at(self._state(since), now), limited=limited
                )
        except TableAlteredError:
            if self._options.schema_mode is not SchemaMode.HOLD:
                raise
            self._holds = True
            return None

    def _is_empty(self, since: Offset, batch: MicroBatch) -> bool:
        """Return whether the micro-batch would contain nothing, and change nothing."""
        step, late = batch.step, batch.cursor.late
        has_late_rows = late not in (None, since.cursor.late) or bool(batch.rows)
        is_empty = step.window.is_empty and not step.missed and not since.is_before_snapshot
        return is_empty and not has_late_rows and self._lost_in_plan is None

    def _end(self, since: Offset, batch: MicroBatch, now: Micros, *, limited: bool) -> Offset:
        """Return the offset at the end of a micro-batch, or of the new snapshot's first one."""
        state, lost = self._state(since), None
        began, began_with = None, None
        if since == self._initial:
            began, began_with = since.position, since.cursor.generations
        if not (found := self._lost(since, batch.step, state, now)).is_empty:
            check_resnapshot(self._options, state.cdc.ttl)
            if self._lost_in_plan is None:  # otherwise, the loss was logged with the plan
                warn_of_loss(found, self._options.table)
            since, lost, self._lost_in_plan = self._again(since, now), found, None
            batch = self._batches.next(
                since, now, lambda: since.ttls_at(state, now), limited=limited
            )
        for generation in batch.step.missed:
            log.warning("generation_announced_late", start=generation)
        if batch.cursor.snapshot is not None:
            lost = lost or since.lost
        cursor = evolve(batch.cursor, ttls=since.ttls_at(state, now))
        late_rows, self._late_rows = self._late_rows, 0
        moved = evolve(since, cursor=cursor, rows=batch.rows, lost=lost, late_rows=late_rows)
        return evolve(moved, began=began, began_with=began_with)

    def _warn_at_start(self, since: Offset, now: Micros) -> bool:
        """Warn once of a start in the future, and of numbers that a new query reads as text.

        Returns whether this is the start.
        """
        if self._has_begun:
            return False
        warn_of_future(since.position, now, self._options.table)
        if since == self._initial:
            self._warn_of_text()
        self._has_begun = True
        return True

    def _tell_unread(self, step: Step, now: Micros) -> None:
        """Tell of rows that are too new, if the query finds no others at its start."""
        settled = Window(step.window.start, max(step.window.start, self._batches.settled(now)))
        visible = timeline_of(self._options, of_all=False)
        tell_unread(self._options, self._schema, visible, settled, now)

    def _is_altered(self) -> bool:
        """Return whether the query holds its position because the table has other columns.

        The columns are read after the micro-batch's end was determined, so that every row before
        this end was written when the table still had the columns of the DataFrame.
        """
        if self._options.schema_mode is SchemaMode.HOLD:
            self._holds = is_altered(self._options, self._schema, self._names)
        return self._holds

    def _warn_of_text(self) -> None:
        """Warn that numbers become text, in which Spark finds other sums and maxima."""
        name, wanted = str(self._options.table), self._options.format.decimal_type
        if found := decimals_as_text(self._schema.base, wanted):
            log.warning("decimals_as_text", table=name, columns=", ".join(found), remedy=_AS_TEXT)

    def _count_late_rows(self, count: int) -> None:
        self._late_rows += count

    @hide_traceback()
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        settled = self._batches.settled(self._clock.now())
        return evolve(self._at(settled), has_snapshot=self._options.snapshot).to_json()

    @hide_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        since, until = self._checked(start), Offset.from_json(end)
        if until.began is not None and since != until:
            since = self._beginning_at(until.began)
            begun = evolve(
                since.cursor,
                generations=until.began_with,
                ttls=evolve(until.cursor.ttls, changes=since.cursor.ttls.changes),
            )
            since = evolve(since, cursor=begun)
        if since != until:
            until.check_new_snapshot(self._options.data_loss)
        if until.begins_anew(since):
            since = since.again(until.position)
        window, tokens = Window(since.position, until.position), TokenRange(since.done, until.done)
        parts: list[SourcePartition] = []
        if until.rows and until != since:
            parts.append(LatePartition(until.rows))
        step = self._step(since, until)
        missed = step.missed
        if window.is_empty and not missed and not tokens.size:
            return of_one_plan(parts)
        ttls = since.ttls_at(self._state(since), self._clock.now())
        whole = Window(step.first, until.position)
        promise = self._promise(since, until, step, ttls)
        check_columns(self._options, self._names)
        timeline, filled = step.timeline, self._filled(whole)
        rows: list[SourcePartition] = []
        rows += plan_snapshot(self._options, timeline, since.position, tokens)
        rows += self._marks(since, tokens)
        if window.is_empty and not missed:
            return of_one_plan([*rows, *parts])
        planned = ArrivalFilter.of(until.cursor, whole)
        twins = delivered_twins(self._options, self._schema, self._clock, since.cursor, step)
        base = self._schema.base
        rest = plan(self._options, base, timeline, window, filled, planned, promise, missed, twins)
        return of_one_plan([*rows, *parts, *rest])

    def _step(self, since: Offset, until: Offset) -> Step:
        """Return the step between two offsets, with the generations that `until` records."""
        before, known = since.cursor, until.cursor.generations
        window = Window(since.position, until.position)
        if known is None:
            timeline = timeline_of(self._options, of_all=False)
            return Step(window, KnownGenerations(window.start, ()), timeline)
        missed = known.missed(before.generations, before.first, window.start)
        timeline = Timeline(known.starts)
        if missed or not known.covers(window.start):
            visible = timeline_of(self._options, of_all=False)
            timeline = Timeline(known.with_older(visible.starts))
        return Step(window, known, timeline, missed, frozenset(missed))

    def _marks(self, since: Offset, tokens: TokenRange) -> Iterator[MarkPartition]:
        """Yield the marks of a micro-batch that reads these tokens of a snapshot."""
        if not (tokens.size and self._options.takes_new_snapshots):
            return
        if tokens.start == MIN_TOKEN:
            yield MarkPartition(since.position, SNAPSHOT_BEGIN)
        if tokens.end == MAX_TOKEN:
            yield MarkPartition(since.position, SNAPSHOT_COMPLETE)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, self._names, partition, self._clock)

    def __repr__(self) -> str:
        return f"StreamReader({self._options.table})"

    def _beginning_at(self, position: Micros) -> Offset:
        """Return the initial offset of a query that begins at `position`."""
        given, offset = self._options.starting_offset, self._at(position)
        if self._options.snapshot:
            begun = evolve(offset.cursor, snapshot=snapshot_until(MIN_TOKEN, position))
            return evolve(offset, cursor=begun, has_snapshot=True)
        if given is None or given.position != position:
            return offset
        known = given.cursor.generations
        return evolve(offset, cursor=evolve(offset.cursor, generations=known))

    def _at(self, position: Micros) -> Offset:
        """Return the offset at `position` for a new query."""
        base, ttls = self._schema.base, self._options.ttls(self._schema.base, self._clock.now())
        assert base.id is not None  # noqa: S101 - the schema is from the cluster
        cursor = Checkpoint(position, table_id=base.id, ttls=ttls)
        return Offset(cursor, str(base.name))

    def _checked(self, stored: dict[str, Any]) -> Offset:
        """Parse the offset of a checkpoint; raise an error if it does not belong to this query."""
        offset = Offset.from_json(stored)
        offset.check_table(self._options.table, self._schema.base.id)
        if offset.is_before_snapshot:
            offset.check_new_snapshot(self._options.data_loss)
        again = self._options.takes_new_snapshots
        offset.check_snapshot(wanted=self._options.snapshot, again=again)
        return offset

    def _state(self, since: Offset) -> TableState:
        """Return the table's current state; raise an error if it is not the offset's table."""
        state = state_of(self._options)
        since.check_table(self._options.table, state.id)
        return state

    def _filled(self, window: Window) -> Window | None:
        """Return the window in which rows are expected; None if streams must not be divided.

        A stream that is divided among partitions loses the order of its rows, so streams are
        divided only if more partitions are requested.
        """
        if self._options.min_partitions == 1:
            return None
        return expected(self._schema.base, window)

    def _promise(
        self, since: Offset, until: Offset, step: Step, ttls: TtlHistory
    ) -> Promise | None:
        """Return the rows that the tasks must find; report rows that may have expired.

        During a snapshot, the tasks must find all rows written since the snapshot began. A new
        query without a snapshot begins with the rows that have not expired. Returns None if rows
        are lost and a new snapshot follows.
        """
        now, options, window = self._clock.now(), self._options, step.window
        if self._has_no_past(since, ttls):
            return promise_from(options, window, ttls, now)
        if since.is_before_snapshot:
            window = Window(since.position, max(since.position, now))
        if options.takes_new_snapshots:
            lost = self._endangered(since, step, ttls, now)
            self._remember_lost(lost)
            return Promise(ttls, step.first, options.data_loss) if lost.is_empty else None
        unread = [*step.missed.values(), window]
        promise = report_loss(options, unread, ttls, now, self._remedy(since.position))
        is_chosen = until.began is not None and options.starting_offset is None
        return promise_from(options, window, ttls, now) if is_chosen else promise

    def _remember_lost(self, lost: Window) -> None:
        """Let the next offset begin a new snapshot if rows of the planned micro-batch are lost.

        The planned micro-batch itself cannot begin the snapshot, because a repetition of the
        micro-batch must contain the same rows. The loss is also logged, because it is forgotten if
        the query ends before the next offset. A plan without a loss cures no earlier one.
        """
        if self._lost_in_plan is None and not lost.is_empty:
            warn_of_loss(lost, self._options.table, _FORGOTTEN)
            self._lost_in_plan = lost

    def _remedy(self, position: Micros) -> str:
        """Return what to do if rows since `position` are lost."""
        is_first = self._initial is not None and position == self._initial.position
        is_given = is_first and self._options.starting_offset is not None
        earliest = "startingOffsets 'earliest' and " if is_given else ""
        return f"start over with {earliest}a new checkpointLocation"

    def _has_no_past(self, since: Offset, ttls: TtlHistory) -> bool:
        """Return True if a new query begins at `since`, and needs only rows that still exist."""
        is_first = self._initial is not None and since.position == self._initial.position
        is_chosen = self._options.starting_offset is None and not self._options.snapshot
        return is_first and is_chosen and ttls.log_lost <= since.position

    def _lost(self, since: Offset, step: Step, state: TableState, now: Micros) -> Window:
        """Return the window of changes that may expire before they are read.

        The window is empty unless the query takes new snapshots.
        """
        nothing = Window(since.position, since.position)
        if not self._options.takes_new_snapshots:
            return nothing
        if self._lost_in_plan is not None:
            return self._lost_in_plan
        ttls = since.ttls_at(state, now)
        is_new = self._has_no_past(since, ttls)
        return nothing if is_new else self._endangered(since, step, ttls, now)

    def _endangered(self, since: Offset, step: Step, ttls: TtlHistory, now: Micros) -> Window:
        """Return the window of unread changes that may expire before they are read."""
        known = since.cursor.generations or KnownGenerations(
            since.position, ()
        )  # of a given offset
        cursor = evolve(since.cursor, ttls=ttls, generations=known)
        return lost_since(cursor, now, self._options.data_loss, step.missed.values())

    def _again(self, since: Offset, now: Micros) -> Offset:
        """Return the offset at which a new snapshot begins."""
        return since.again(settled_before(now, self._options.confidence))

    def _start(self) -> Micros:
        """Return where a new query begins: at the oldest row that the log may hold, or later.

        Like a checkpoint's offset, an offset that the user passes is not moved: rows after the
        offset that have expired are lost.
        """
        if self._options.starting_offset is not None:
            return self._options.starting_offset.position
        now = self._clock.now()
        report_expired_start(self._options, self._schema.base, now)
        ttls, start = self._options.ttls(self._schema.base, now), self._options.window(now).start
        oldest = oldest_alive(timeline_of(self._options), kept_since := ttls.kept_since(now))
        if self._options.snapshot:
            return max(oldest, self._batches.settled(now))
        if start > BEGINNING and ttls.created is not None:
            # An older generation may be announced later, but the log has no rows before its time.
            oldest = min(oldest, first_written(ttls.created))
        return max(start, oldest, kept_since)
