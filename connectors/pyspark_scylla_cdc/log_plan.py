"""Plans, on the driver, the read of a window of the log or of the base table."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from cdc_reader._time import Clock, Micros, duration_micros
from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import LogSchema, TableSchema
from cdc_reader.errors import SourceError
from cdc_reader.reading import tuning
from cdc_reader.reading.advance import Step
from cdc_reader.reading.cursor import Checkpoint, RowKey
from cdc_reader.reading.deduplication import ROW_KEY
from cdc_reader.reading.late.keys import KeyReader
from cdc_reader.reading.windows.fetch import KeyLog
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.ring import TokenRange
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.late import ArrivalFilter
from pyspark_scylla_cdc.planning.partition import LogPartition, partitions
from pyspark_scylla_cdc.planning.plan import NONE_MISSED, divide, slices, spans
from pyspark_scylla_cdc.planning.promise import Promise
from pyspark_scylla_cdc.planning.snapshot import SnapshotPartition, snapshot_partitions
from pyspark_scylla_cdc.sessions import cluster_for, ends_of, loaded_generations, streams_loader

_LATE = 5_000_000
"""µs for which the server still accepts writes to a generation that has ended."""


def plan(
    options: SourceOptions,
    base: TableSchema,
    timeline: Timeline,
    window: Window,
    filled: Window | None = None,
    planned: ArrivalFilter | None = None,
    promise: Promise | None = None,
    missed: Mapping[Micros, Window] = NONE_MISSED,
    twins: frozenset[RowKey] = frozenset(),
) -> list[LogPartition]:
    """Return the partitions that read `window`.

    `timeline` must contain the generations up to the end of the window. With `planned`, only rows
    that had arrived by `planned.moment` are read. With a `promise`, tasks report rows that expire
    before they are read. `filled` is the window in which rows are expected. If it is given, or if
    there are fewer streams than partitions, the rows of a stream may be divided among several
    partitions by time. `missed` maps the start of each late-announced generation to its unread
    window, which is before `window` and is read as well, except the rows with the keys `twins`.
    """
    streams = streams_loader(options, base)
    least = options.min_partitions
    most = options.max_partitions if options.partition_key is None else least
    parts = spans(timeline, window, lambda generation: len(streams(generation)), filled, missed)
    count = 1 if filled is None else slices(parts, most, tuning.STREAMS_PER_QUERY)
    return partitions(divide(parts, least, most, count), streams, planned, promise, twins)


def plan_snapshot(
    options: SourceOptions, timeline: Timeline, position: Micros, tokens: TokenRange
) -> list[SnapshotPartition]:
    """Return the partitions that read the table's rows in `tokens`, as of `position` (µs)."""
    if not tokens.size:
        return []
    ends = ends_of(options, max(timeline.starts, default=None))
    return snapshot_partitions(position, tokens, options.max_partitions, ends)


def delivered_twins(
    options: SourceOptions, schema: LogSchema, clock: Clock, cursor: Checkpoint, step: Step
) -> frozenset[RowKey]:
    """Return the keys of rows of late-announced generations that were delivered as others."""
    if not step.missed:
        return frozenset()
    reader = key_reader(options, schema, clock, duration_micros(options.late_horizon))
    return reader.at(step.timeline).twins(step, cursor, options.confidence)


def key_reader(
    options: SourceOptions,
    schema: LogSchema,
    clock: Clock,
    reach: int,
    *,
    queries: int | None = None,
) -> KeyReader:
    """Return what reads the keys of the log's rows; see `KeyReader`."""
    columns = tuple(column for column in schema.columns if column.name in ROW_KEY)
    source = cluster_for(options).source(evolve(schema, columns=columns))
    generations = loaded_generations(options, schema.base)
    return KeyReader(KeyLog(source), generations, clock, reach, queries=queries)


def expected(base: TableSchema, window: Window) -> Window:
    """Return the part of the window in which the log existed, according to its id."""
    created = timeuuid.created(base.log_id)
    return window if created is None else Window(max(window.start, created), window.end)


def oldest_alive(timeline: Timeline, kept_since: Micros) -> Micros:
    """Return the start, in µs, of the oldest generation that may have unexpired rows.

    `kept_since` is the earliest write time of rows that are still in the log.
    """
    for span in timeline.operating():
        if span.end > kept_since - _LATE:
            return span.start
    raise SourceError(
        "the cluster has not published a CDC generation yet: wait until its nodes are up, and "
        "try again"
    )
