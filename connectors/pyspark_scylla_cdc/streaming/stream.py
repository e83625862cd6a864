"""Streaming reads: the log followed at a distance, in micro-batches that Spark can repeat.

Spark's behaviour, and its consequences:

* Spark calls `initialOffset` several times at the start of a query, and again on a restart before
  the first commit. No checkpoint stores its answer, so the offset at the end of the first
  micro-batch also records where the micro-batch began.
* Spark polls `latestOffset` about forty times a second. The method reads the clock, and queries
  the cluster only when a micro-batch may be due (see `window_end`).
* A micro-batch may be planned again after a restart: its partitions follow from the two
  offsets and the generation tables alone.
* Spark does not call `stop` on a clean stop, and calls `commit` one micro-batch late. This reader
  depends on neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from cdc_reader._time import Clock, Micros, SystemClock
from cdc_reader.cql.schema import LogSchema, TableState
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.streams.ring import TokenRange
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.data_loss import report_expired_start, report_loss
from pyspark_scylla_cdc.executors.partitions import read_partition
from pyspark_scylla_cdc.log_plan import expected, oldest_alive, plan, plan_snapshot
from pyspark_scylla_cdc.offsets.offset import Offset, SnapshotState
from pyspark_scylla_cdc.options.errors import hide_traceback
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.partition import LatePartition, SourcePartition, of_one_plan
from pyspark_scylla_cdc.sessions import check_columns, state_of, still_there, timeline_of
from pyspark_scylla_cdc.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark_scylla_cdc.streaming.monitor import Monitor
from pyspark_scylla_cdc.streaming.window_end import WindowEnd

_ONE_WINDOW = ReadMaxFiles(1)
"""Stands for this source's limit by time, which Spark does not have and cannot carry.

It only tells the source to apply its limit.
"""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log; its position is a write time."""

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
        self._clock = clock or SystemClock()
        self._monitor = Monitor(options)
        self._window_end = WindowEnd(options, schema, self._clock, self._monitor.count_late_rows)
        self._initial: Offset | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._window_end.finish(self._clock.now())

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
        with self._monitor.recording():
            return self._latest(start, limit)

    def _latest(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        since = self._checked(start)
        limited = not isinstance(limit, ReadAllAvailable)
        now = self._clock.now()
        with still_there(self._options, self._schema):
            batch = self._window_end.next(
                since, now, lambda: since.ttls_at(self._state(since), now), limited=limited
            )
        has_late_rows = batch.late not in (None, since.late)
        if batch.window.is_empty and not since.is_before_snapshot and not has_late_rows:
            return start
        state = self._state(since)
        began = since.position if since == self._initial else None
        end, late, done = batch.window.end, batch.late, batch.done
        return since.moved(end, self._options.table, state, now, late, began, done).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        state = SnapshotState.DONE if self._options.snapshot else SnapshotState.NONE
        return self._at(self._window_end.settled(self._clock.now()), state).to_json()

    @hide_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with self._monitor.recording():
            return self._monitor.reported(self._planned(start, end), int(end["position"]))

    def _planned(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        since, until = self._checked(start), Offset.from_json(end)
        if until.began is not None and since != until:
            since = self._beginning_at(until.began)
        window, tokens = Window(since.position, until.position), TokenRange(since.done, until.done)
        parts: list[SourcePartition] = []
        if until.late is not None and until.late.rows and until != since:
            parts.append(LatePartition(until.late.rows))
        if window.is_empty and not tokens.size:
            return of_one_plan(parts)
        ttls = since.ttls_at(self._state(since), self._clock.now())
        self._check_loss(since, window, ttls)
        check_columns(self._options, self._names)
        timeline, filled = timeline_of(self._options), self._filled(window)
        self._monitor.see(timeline)
        rows = plan_snapshot(self._options, timeline, since.position, tokens)
        if window.is_empty:
            return of_one_plan([*rows, *parts])
        planned = None if until.late is None else until.late.planned(window, ttls)
        rest = plan(self._options, self._schema.base, timeline, window, filled, planned)
        return of_one_plan([*rows, *parts, *rest])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, self._names, partition, self._clock)

    def __repr__(self) -> str:
        return f"StreamReader({self._options.table})"

    def _beginning_at(self, position: Micros) -> Offset:
        """Return the initial offset of a query that begins at `position`."""
        wanted = self._options.snapshot
        return self._at(position, SnapshotState.PENDING if wanted else SnapshotState.NONE)

    def _at(self, position: Micros, snapshot: SnapshotState) -> Offset:
        """Return the offset at `position` for a new query."""
        base, ttls = self._schema.base, self._options.ttls(self._schema.base, self._clock.now())
        return Offset(position, snapshot, str(base.name), base.id, ttls.after(position))

    def _checked(self, stored: dict[str, Any]) -> Offset:
        """Parse the offset of a checkpoint; raises if it does not belong to this query."""
        offset = Offset.from_json(stored)
        offset.check_table(self._options.table, self._schema.base.id)
        offset.check_snapshot(wanted=self._options.snapshot)
        return offset

    def _state(self, since: Offset) -> TableState:
        """Return the table's current state; raises if it is not the offset's table."""
        state = state_of(self._options)
        since.check_table(self._options.table, state.id)
        return state

    def _filled(self, window: Window) -> Window | None:
        """Return where rows are expected, if the time of a stream may be spread over partitions.

        Spreading gives up the order of rows within a partition, so it is done only if more
        partitions are requested.
        """
        return expected(self._options, window) if self._options.min_partitions > 1 else None

    def _check_loss(self, since: Offset, window: Window, ttls: TtlHistory) -> None:
        """Report if rows of the window may have expired unread.

        During a snapshot these are all rows since it began. A query without one that is not
        resumed begins with the rows that have not expired.
        """
        now, options = self._clock.now(), self._options
        if since.is_before_snapshot:
            window = Window(since.position, max(since.position, now))
        is_first = self._initial is not None and window.start == self._initial.position
        if is_first and options.starting_offset is None and not options.snapshot:
            return
        is_given = is_first and options.starting_offset is not None
        earliest = "startingOffsets 'earliest' and " if is_given else ""
        remedy = f"start over with {earliest}a new checkpointLocation"
        report_loss(options, window, ttls, now, remedy)

    def _start(self) -> Micros:
        """Return where a new query begins: at the oldest row that the log may hold, or later.

        A given offset is kept as it is, like that of a checkpoint: what has expired since is lost.
        """
        if self._options.starting_offset is not None:
            return self._options.starting_offset.position
        now = self._clock.now()
        report_expired_start(self._options, self._schema.base, now)
        kept_since = self._options.ttls(self._schema.base, now).kept_since(now)
        oldest = oldest_alive(timeline_of(self._options), kept_since)
        if self._options.snapshot:
            return max(oldest, self._window_end.settled(now))
        return max(self._options.window(now).start, oldest, kept_since)
