"""Batch reads: one window of the log, planned when Spark plans the query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from attrs import evolve
from pyspark.sql.datasource import DataSourceReader, InputPartition

from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, FOREVER, Clock, Micros
from cdc_reader.cql.schema import LogSchema
from cdc_reader.reading.advance import (
    Limits,
    View,
    advance,
    settled_before,
    warn_of_future,
    written_before,
)
from cdc_reader.reading.cursor import RowKey
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.retry import NEVER
from cdc_reader.reading.view import PublicationGate
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.ring import WHOLE_RING
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.data_loss import promise_from, report_expired_start, report_loss
from pyspark_scylla_cdc.executors.partitions import read_partition
from pyspark_scylla_cdc.log_plan import (
    delivered_twins,
    expected,
    oldest_alive,
    plan,
    plan_snapshot,
)
from pyspark_scylla_cdc.options.errors import hide_traceback
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.partition import SourcePartition, of_one_plan
from pyspark_scylla_cdc.planning.plan import NONE_MISSED
from pyspark_scylla_cdc.planning.promise import Promise
from pyspark_scylla_cdc.sessions import SourceClock, generations_of
from pyspark_scylla_cdc.unsettled import tell_read

log = get_logger(__name__)


class BatchReader(DataSourceReader):
    """Reads the log between the bounds of the options, or the whole log if there are no bounds."""

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
        if unused := options.of_streams:
            remedy = "they have an effect on streams only: leave them out"
            log.warning("options_without_effect", options=", ".join(unused), remedy=remedy)

    @hide_traceback()
    def partitions(self) -> list[SourcePartition]:
        now = self._clock.now()
        wanted = self._options.window(now)
        timeline = self._timeline(wanted)
        ttls = self._options.ttls(self._schema.base, now)
        oldest = oldest_alive(timeline, ttls.kept_since(now))
        missed, twins = self._missed(timeline, ttls, now)
        promise = self._check_loss([*missed.values(), wanted], ttls, now)
        first: list[SourcePartition] = []
        if self._options.snapshot:
            position = max(oldest, settled_before(now, self._options.confidence))
            [ring] = WHOLE_RING
            first += plan_snapshot(self._options, timeline, position, ring)
            wanted = Window(position, wanted.end)
        end = written_before(now) if wanted.end == FOREVER else wanted.end
        window = Window(oldest if wanted.start == BEGINNING else wanted.start, end)
        tell_read(self._options, self._schema, timeline, window, now)
        filled = expected(self._schema.base, self._alive(wanted, now))
        rest = plan(
            self._options,
            self._schema.base,
            timeline,
            window,
            filled,
            promise=promise,
            missed=missed,
            twins=twins,
        )
        return of_one_plan([*first, *rest])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, self._names, partition, self._clock)

    def __repr__(self) -> str:
        return f"BatchReader({self._options.table})"

    def _timeline(self, window: Window) -> Timeline:
        """Return all generations.

        Waits first until every generation that may contain rows of `window` has been announced.
        """
        generations = partial(generations_of, self._options)
        PublicationGate(generations).wait(window, self._clock, NEVER.stop)
        return Timeline(tuple(generations().timestamps()))

    def _missed(
        self, timeline: Timeline, ttls: TtlHistory, now: Micros
    ) -> tuple[Mapping[Micros, Window], frozenset[RowKey]]:
        """Return the generations announced after `startingOffsets` was reached.

        With each comes its unread window, and with all of them the keys of rows in these windows
        that were delivered as others.
        """
        options = self._options
        if options.starting_offset is None:
            return NONE_MISSED, frozenset()
        cursor = evolve(options.starting_offset.cursor, ttls=ttls)
        step = advance(cursor, View(now, timeline), Limits(options.confidence))
        twins = delivered_twins(options, self._schema, self._clock, cursor, step)
        return step.missed, twins

    def _check_loss(self, unread: Sequence[Window], ttls: TtlHistory, now: Micros) -> Promise:
        """Warn of a future start, report rows that may have expired, and return the `Promise`.

        The last of the `unread` windows is the one that was requested.

        Without a start, the batch reads the rows that the log still contains, so rows may expire
        during the read. However, it is an error if the log is dropped and created again during the
        read.
        """
        options, wanted = self._options, unread[-1]
        warn_of_future(wanted.start, now, options.table)
        report_expired_start(options, self._schema.base, now)
        if options.starting_offset is not None:
            return report_loss(options, unread, ttls, now, "leave startingOffsets out")
        promise = promise_from(options, wanted, ttls, now)
        is_open = wanted.start == BEGINNING and not options.snapshot
        return evolve(promise, is_open=is_open)

    def _alive(self, wanted: Window, now: Micros) -> Window:
        """Return the part of the window that contains nearly all rows, for dividing the work.

        Except for rows with client-set timestamps, no row outlives the log's TTL, and no row has a
        write time in the future.
        """
        ttl = self._schema.base.cdc.ttl
        start = max(wanted.start, now - ttl * 1_000_000) if ttl else wanted.start
        return Window(start, now if wanted.end == FOREVER else wanted.end)
