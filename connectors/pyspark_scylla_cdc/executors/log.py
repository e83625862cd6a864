"""Reads a partition of the log: a share of a plan, or late rows that the driver listed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

import pyarrow as pa
from attrs import evolve

from cdc_reader._time import Clock, Micros, SystemClock
from cdc_reader.cql.schema import STREAM_ID, Column, LogSchema
from cdc_reader.reading.deduplication import ROW_KEY
from cdc_reader.reading.fetch import read_ahead, read_tasks
from cdc_reader.reading.ports import LogSource
from cdc_reader.streams.strategy import Strategy
from cdc_reader.streams.task import RangeTask
from pyspark_scylla_cdc.executors.timing import timed
from pyspark_scylla_cdc.offsets.late import rows_named, tasks_of
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.partition import LatePartition, LogPartition, LogRead
from pyspark_scylla_cdc.planning.promise import report_lost_late_rows
from pyspark_scylla_cdc.planning.streams import PartitionKey, Streams
from pyspark_scylla_cdc.schema import part_of
from pyspark_scylla_cdc.sessions import (
    choice_of,
    partition_key_of,
    row_format,
    source_of,
    state_of,
    streams_loader,
)

Sieve = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def log_rows(
    options: SourceOptions,
    schema: LogSchema,
    names: Collection[str],
    partition: LogPartition | LatePartition,
    clock: Clock,
) -> Iterator[pa.RecordBatch]:
    """Yield the partition's rows in the requested format, with the columns `names`."""
    output = row_format(options, schema)
    key = partition_key_of(options, schema.base)
    is_by_key = isinstance(partition, LatePartition) or partition.planned is not None
    wanted = output.log_columns(names)
    columns = _columns(options, schema, wanted, key, ROW_KEY if is_by_key else ())
    read = evolve(schema, columns=columns)
    source = source_of(options.connection(), options.read, read, tolerant=output.is_tolerant)
    if isinstance(partition, LatePartition):
        batches = _late_rows(options, source, partition)
    else:
        batches = _planned_rows(
            options, source, partition, streams_loader(options, schema.base), clock
        )
        batches = _checked(options, batches, partition, clock)
    if key is not None:
        batches = key.rows(batches)
    typed = options.format.types.convert(batches, read.columns)
    return output.convert(typed, part_of(output.schema, names))


def _planned_rows(
    options: SourceOptions,
    source: LogSource,
    partition: LogPartition,
    streams: Callable[[Micros], Streams],
    clock: Clock,
) -> Iterator[pa.RecordBatch]:
    """Yield the partition's rows, read with the configured strategy.

    With `auto`, the process chooses the strategy by its own measurements.
    """
    chunk = options.read.chunk_size
    choice = choice_of(options.connection(), options.table, options.read_strategy)
    used = choice.next()
    reads = partition.reads(streams, used, chunk)
    planned = partition.planned
    sieve = None if planned is None else partial(planned.rows, clock=clock)
    found = read_ahead(partial(task_rows, source, sieve=sieve), reads, options.read.in_flight)
    batches = (batch for _, batch in found)
    if not choice.is_open:
        return batches
    size = {"streams": partition.streams, "queries": partition.queries(chunk)}
    return timed(batches, choice, used, SystemClock(), **size)


def _checked(
    options: SourceOptions,
    batches: Iterator[pa.RecordBatch],
    partition: LogPartition,
    clock: Clock,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and then report rows that may have been lost before they were read."""
    yield from batches
    if (promise := partition.promise) is not None:
        state = state_of(options)
        promise.check(partition.window, options.table, state, clock.now())


def task_rows(
    source: LogSource, read: LogRead, sieve: Sieve | None = None
) -> Iterator[pa.RecordBatch]:
    """Request the first page of one query, and return its rows, filtered by `sieve` if given.

    A sieve needs the rows' remaining TTLs, so they are read as well.
    """
    batches = source.read(read.task, remaining_ttl=sieve is not None)
    own = read.streams.rows(batches) if isinstance(read.task, RangeTask) else batches
    return own if sieve is None else sieve(own)


def _late_rows(
    options: SourceOptions, source: LogSource, partition: LatePartition
) -> Iterator[pa.RecordBatch]:
    """Yield the late rows that the partition lists, and report listed rows that are gone."""
    missing = len(partition.names)
    for _, batch in read_tasks(source, tasks_of(partition.names), options.read.in_flight):
        if (rows := rows_named(batch, partition.names)).num_rows:
            missing -= rows.num_rows
            yield rows
    if missing:
        report_lost_late_rows(missing, partition.window, options.table, options.data_loss)


def _columns(
    options: SourceOptions,
    schema: LogSchema,
    wanted: Collection[Column],
    key: PartitionKey | None,
    more: Collection[str],
) -> tuple[Column, ...]:
    """Return the log columns to read: `wanted`, `more`, and the columns needed to select rows."""
    names = {column.name for column in (*wanted, *(key.columns if key else ()))} | set(more)
    if options.read_strategy is not Strategy.STREAMS:
        names.add(STREAM_ID)
    return tuple(column for column in schema.columns if column.name in names)
