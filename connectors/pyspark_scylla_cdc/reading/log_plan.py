"""Turns a window into partitions, by the cluster's current generations."""

from __future__ import annotations

from collections.abc import Callable, Collection

from attrs import evolve

from cdc_reader._time import FOREVER, Micros, duration_micros
from cdc_reader.cql.schema import BATCH_SEQ_NO, LogSchema, TableSchema
from cdc_reader.errors import SchemaError, SourceError
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.offsets.late import Planned
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.options.table import SchemaMode
from pyspark_scylla_cdc.planning.look import Look
from pyspark_scylla_cdc.planning.partition import LogPartition, partitions
from pyspark_scylla_cdc.planning.plan import divide, slices, spans
from pyspark_scylla_cdc.planning.row_limit import RowLimit
from pyspark_scylla_cdc.reading.sessions import (
    created_at,
    form_of,
    schema_of,
    source_of,
    streams_loader,
    timeline_of,
)

_LATE = 5_000_000
"""µs for which the server still accepts writes into a generation that has ended."""


def refuse_new_columns(
    options: SourceOptions, known: Collection[str], names: Collection[str]
) -> None:
    """Raise SchemaError if the table has columns the DataFrame lacks, and the options forbid it."""
    new = [name for name in known if name not in names]
    if new and options.schema_mode is SchemaMode.FAIL:
        raise SchemaError(
            f"{options.table} has columns that the DataFrame lacks ({', '.join(new)}), and "
            "schemaMode is 'fail': load it again"
        )


def check_columns(options: SourceOptions, names: Collection[str]) -> None:
    """Raise SchemaError as `refuse_new_columns` does, by the table's current schema."""
    if options.schema_mode is SchemaMode.FAIL:
        known = form_of(options, schema_of(options)).schema.names
        refuse_new_columns(options, known, names)


def plan(
    options: SourceOptions,
    base: TableSchema,
    timeline: Timeline,
    window: Window,
    filled: Window | None = None,
    planned: Planned | None = None,
) -> list[LogPartition]:
    """Return the partitions that read `window`; `timeline` must reach to the end of the window.

    With `planned`, only rows that had arrived by then are read. `filled` is the window in which
    rows are expected. If it is given, a stream's time may be spread over several partitions;
    otherwise only if there are fewer streams than partitions.
    """
    streams = streams_loader(options, base)
    least = options.min_partitions
    most = options.max_partitions if options.partition_key is None else least
    parts = spans(timeline, window, lambda generation: len(streams(generation)), filled)
    count = 1 if filled is None else slices(parts, most, options.read.chunk_size)
    return partitions(divide(parts, least, most, count), streams, planned)


def expected(options: SourceOptions, window: Window) -> Window:
    """The part of the window in which the log existed, by the creation time in its table's id."""
    created = created_at(options.connection(), options.read, options.table)
    return Window(max(window.start, created), window.end)


def row_limit(options: SourceOptions, schema: LogSchema) -> Callable[[Window], int]:
    """Make the function that limits a window to the rows that a micro-batch may have."""
    columns = tuple(column for column in schema.columns if column.name == BATCH_SEQ_NO)
    source = source_of(options.connection(), options.read, evolve(schema, columns=columns))
    streams = streams_loader(options, schema.base)
    shortest = duration_micros(options.min_advance)
    limit = RowLimit(source, streams, options.max_rows or FOREVER, shortest)

    def end(window: Window) -> Micros:
        timeline = timeline_of(options)
        return limit.end(window, lambda part: spans(timeline, part, lambda g: len(streams(g))))

    return end


def look(options: SourceOptions, schema: LogSchema) -> Look:
    """Make the check for rows in a window, which costs a few queries."""
    columns = tuple(column for column in schema.columns if column.name == BATCH_SEQ_NO)
    read = options.read
    source = source_of(options.connection(), read, evolve(schema, columns=columns), limit=1)
    streams = streams_loader(options, schema.base)
    return Look(source, streams, options.read_strategy, read.chunk_size, read.in_flight)


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
