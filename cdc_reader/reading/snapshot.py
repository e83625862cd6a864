"""Reads a table's rows by token range, several ranges at a time.

The state is what a checkpoint contains: the position from which the log is followed afterwards, and
the ranges that are done. See "Snapshot, then follow" in the design.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from attrs import define, evolve, field, frozen

from cdc_reader._arrow import has_value, to_arrow, to_numpy
from cdc_reader._log import get_logger
from cdc_reader._time import Clock, Micros, duration_micros, format_timestamp
from cdc_reader.config import DataLossMode, DeliveryMode, LateRowsMode, ReadConfig, poll_interval
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import FAULTS, LogSchema
from cdc_reader.errors import CheckpointError, DecodeError, QueryRefusedError
from cdc_reader.reading import tuning
from cdc_reader.reading.advance import settled_before
from cdc_reader.reading.cursor import Checkpoint, LateState, SnapshotProgress
from cdc_reader.reading.delivery import name_of_table
from cdc_reader.reading.loss import LossReporter, lost_since, refuse_endless_snapshots
from cdc_reader.reading.ports import READ_AT, TOKEN, TTLS, GenerationSource, SnapshotTable
from cdc_reader.reading.retry import Stop
from cdc_reader.reading.windows.fetch import CurrentLog
from cdc_reader.reading.windows.in_flight import InFlight
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.ownership import Ownership
from cdc_reader.streams.range_cutter import RangeCutter
from cdc_reader.streams.ring import TokenRange
from cdc_reader.streams.shard import Shard

log = get_logger(__name__)

_PAGES = 20
"""Target size of a range, in pages.

Larger ranges need fewer queries, but more rows are read again after a crash."""


@frozen
class SnapshotRows:
    """A batch of rows from one token range, in the server's order.

    `schema.base` describes the columns; columns with TTLs and write times may follow. The rows are
    as they were when they were read, and count as written at `position` (µs). `reading` identifies
    one reading of the range, because a range may be read more than once.
    """

    schema: LogSchema = field(repr=name_of_table)
    reading: int
    tokens: TokenRange
    position: Micros
    batch: pa.RecordBatch

    @property
    def table(self) -> TableName:
        """The base table."""
        return self.schema.base.name


@frozen
class RangeComplete:
    """The end of the range `tokens`: all its rows have been delivered.

    `rows` is the number of rows in the range. `checkpoint` marks this range, and all ranges
    completed before it, as done. It may be saved once their rows are acknowledged.
    """

    schema: LogSchema = field(repr=name_of_table)
    reading: int
    tokens: TokenRange
    rows: int
    checkpoint: Checkpoint

    @property
    def table(self) -> TableName:
        """The base table."""
        return self.schema.base.name


SnapshotDelivery: TypeAlias = SnapshotRows | RangeComplete
"""An item of a snapshot: rows, or the end of a range. Use `match` to distinguish them."""


@frozen
class SnapshotShare:
    """The part of a snapshot that has been read.

    `rows` is the number of rows read, and `share` is the fraction of the tokens, from 0 to 1.
    `seconds_left` is the estimated time to complete the snapshot, at the rate of this run, or None
    while the rate is unknown.
    """

    rows: int
    share: float
    seconds_left: float | None


def begin_snapshot(table: SnapshotTable, clock: Clock, config: ReadConfig) -> Checkpoint:
    """Return the checkpoint of a snapshot that begins now.

    The caller must save this checkpoint before it reads anything.

    The log is followed from the checkpoint's position, which has settled, so no earlier write is
    still in progress. All shards of a table share this checkpoint. Raises ConfigurationError if a
    new snapshot is to follow each loss, and the log's TTL is too short for that.
    """
    now = clock.now()
    confidence = duration_micros(config.confidence_window)
    position = settled_before(now, confidence)
    base = table.schema().base
    if config.data_loss is DataLossMode.RESNAPSHOT:
        is_eager = config.delivery is DeliveryMode.EAGER
        pause = tuning.SETTLE_INTERVAL if is_eager else poll_interval(config)
        refuse_endless_snapshots("data_loss", base.cdc.ttl, 2 * confidence + pause)
    is_late_wanted = config.late_rows is LateRowsMode.DELIVER
    checkpoint = Checkpoint(
        position,
        late=LateState.begin_snapshot(position, now, confidence) if is_late_wanted else None,
        table_id=base.id,
        table=base.name,
        snapshot=SnapshotProgress(now, _generation_at(table.generations, position)),
    )
    return evolve(checkpoint, ttls=checkpoint.ttls.updated(base, now, position))


def _generation_at(generations: GenerationSource, position: Micros) -> Micros | None:
    """Return the start of the generation in force at `position`, or else of the next generation.

    A generation without streams receives no writes and is skipped. Returns None if no generation
    has streams.
    """
    starts = Timeline(tuple(generations.timestamps())).starts
    before = [start for start in starts if start <= position]
    later = [start for start in starts if start > position]
    return next((start for start in (*before[::-1], *later) if generations.groups(start)), None)


@define(eq=False)
class _Open:
    """A range that is being read, with the number of rows delivered from it."""

    reading: int
    tokens: TokenRange
    schema: LogSchema
    batches: Iterator[pa.RecordBatch]
    rows: int = 0


class SnapshotReader:
    """Reads those ranges of a shard that the checkpoint `start` does not record as done.

    Not thread-safe, except for `stop`. With `cells`, batches contain TTLs, or TTLs and write times,
    see `SnapshotTable.rows`. TTLs alone come with a column `READ_AT`.
    """

    def __init__(
        self,
        table: SnapshotTable,
        clock: Clock,
        config: ReadConfig,
        start: Checkpoint,
        shard: Shard | None = None,
        stop: Stop | None = None,
        *,
        cells: Sequence[str] = (),
    ) -> None:
        if start.snapshot is None:
            raise ValueError("a checkpoint without a snapshot: its snapshot is complete")
        self._table = table
        self._clock = clock
        self._config = config
        self._shard = shard or Shard()
        self._stopped = stop or Stop()
        self._log = CurrentLog(table, start)
        self._in_flight = InFlight()
        self._cells = cells
        self._start = start
        self._progress = start.snapshot
        self._total = self._done_before = self._readings = 0
        self._took = 0
        """µs from the beginning of this run until a range was last completed."""
        self._losses = LossReporter(
            config.data_loss,
            "expected the snapshot to take less time than the log's TTL: raise the TTL and start "
            "anew, or set data_loss to 'continue'",
        )
        self.ttls = start.ttls
        """The log's TTL over time; the log must keep its rows until they are read."""

    @property
    def first(self) -> Micros | None:
        """The position from which the log is followed, in µs."""
        return self._start.position

    def deliveries(self) -> Iterator[SnapshotDelivery]:
        """Deliver the rows of all ranges that are not done.

        Rows of different ranges are interleaved; rows of one range are delivered in order. If the
        server rejects a query after a schema change, the open ranges are read again from their
        beginning, so their rows are delivered again. Raises errors of `cdc_reader.errors`,
        including StoppedError after `stop`.
        """
        ownership = self._ownership()
        cutter = self._cutter(ownership)
        began = self._clock.now()
        opened: deque[_Open] = deque()
        while True:
            self._stopped.check()
            batch = None
            try:
                self._open_more(opened, cutter, ownership)
                if not opened:
                    return
                batch = next(opened[0].batches, None)
                is_altered = batch is not None and has_value(batch, FAULTS) and self._log.reload()
            except (QueryRefusedError, DecodeError):
                if not self._log.reload():
                    raise
                is_altered = True
            if is_altered:
                cutter.put_back([each.tokens for each in opened])
                opened.clear()
                continue
            current = opened.popleft()
            if batch is None:
                cutter.record(current.tokens, current.rows)
                completed = self._completed(current)
                self._took = max(0, self._clock.now() - began)
                yield completed
                continue
            opened.append(current)
            current.rows += batch.num_rows
            yield SnapshotRows(
                current.schema, current.reading, current.tokens, self._start.position, batch
            )

    @property
    def complete(self) -> Checkpoint:
        """The checkpoint from which to follow the log once all rows are acknowledged."""
        return self.with_table_facts(evolve(self._start, snapshot=None))

    @property
    def share(self) -> SnapshotShare:
        """The part of the snapshot that has been delivered."""
        done = self._progress.done.size
        share = done / self._total if self._total else 0.0
        this_run = done - self._done_before
        left = None
        if this_run > 0:
            left = self._took / 1e6 * (self._total - done) / this_run
        return SnapshotShare(self._progress.rows, min(1.0, share), left)

    def with_table_facts(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with the table's id and TTLs, as known now."""
        return evolve(self._log.with_table(checkpoint), ttls=self.ttls)

    def stop(self) -> None:
        """End `deliveries` immediately. Thread-safe."""
        self._stopped.set()

    def _open_more(self, opened: deque[_Open], cutter: RangeCutter, ownership: Ownership) -> None:
        """Open as many ranges as may be in flight, or all that are left."""
        while len(opened) < self._in_flight.limit and (tokens := cutter.next()) is not None:
            self._check_kept()
            try:
                opened.append(self._opened(tokens, ownership))
            except BaseException:
                cutter.put_back([tokens])
                raise

    def _opened(self, tokens: TokenRange, ownership: Ownership) -> _Open:
        schema = self._log.schema
        source = self._table.rows(schema, cells=self._cells, tokens=not ownership.is_exact)
        batches = self._in_flight.each(source.read(tokens))
        if not ownership.is_exact:
            batches = _owned(batches, ownership)
        if self._cells == TTLS:
            batches = map(self._dated, batches)
        self._readings += 1
        return _Open(self._readings, tokens, schema, batches)

    def _dated(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the time at which they were read, from which their TTLs count."""
        now = np.full(batch.num_rows, self._clock.now(), np.int64)
        return batch.append_column(READ_AT, to_arrow(now))

    def _completed(self, read: _Open) -> RangeComplete:
        self._progress = self._progress.after(read.tokens, read.rows)
        log.debug("range_read", table=str(read.schema.base.name), rows=read.rows)
        checkpoint = self.with_table_facts(evolve(self._start, snapshot=self._progress))
        return RangeComplete(read.schema, read.reading, read.tokens, read.rows, checkpoint)

    def _ownership(self) -> Ownership:
        generation = self._progress.generation
        groups = () if generation is None else self._table.generations.groups(generation)
        if generation is not None and not groups and not self._shard.is_whole:
            raise CheckpointError(
                f"the generation of {format_timestamp(generation)}, which determines the rows of "
                f"{self._log.schema.base.name} that belong to shard {self._shard}, is gone; start "
                "all shards anew, under another application name"
            )
        return Ownership(groups, self._shard)

    def _cutter(self, ownership: Ownership) -> RangeCutter:
        spans = ownership.spans
        left = spans.without(self._progress.done)
        self._total, self._done_before = spans.size, spans.size - left.size
        return RangeCutter(left, ownership.ends, _PAGES * self._config.fetch_size)

    def _check_kept(self) -> None:
        """Raise DataLossError, or warn, if rows of the log since the position have expired."""
        now, base = self._clock.now(), self._log.schema.base
        self.ttls = self.ttls.updated(base, now, self._start.position)
        start = evolve(self._start, ttls=self.ttls)
        lost = lost_since(start, now, self._config.data_loss)
        self._losses.report_unread(lost, base.name, self.ttls)


def _owned(batches: Iterator[pa.RecordBatch], ownership: Ownership) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the shard, without the token column."""

    def own(batch: pa.RecordBatch) -> pa.RecordBatch:
        tokens = to_numpy(batch.column(TOKEN))
        mask = ownership.owns(tokens)
        rows = batch if mask.all() else batch.filter(to_arrow(mask))
        return rows.select([name for name in rows.schema.names if name != TOKEN])

    return (rows for rows in map(own, batches) if rows.num_rows)
