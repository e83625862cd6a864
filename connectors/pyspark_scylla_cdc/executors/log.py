"""Reads a partition of the log: a share of a plan, or late rows that the driver listed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

import pyarrow as pa
from attrs import evolve

from cdc_reader._time import Clock, Micros, SystemClock
from cdc_reader.cql.schema import STREAM_ID, Column, LogSchema
from cdc_reader.reading import tuning
from cdc_reader.reading.deduplication import ROW_KEY, leave_out_keys, rows_named
from cdc_reader.reading.ports import LogSource
from cdc_reader.reading.windows.fetch import read_ahead, read_tasks
from cdc_reader.reading.windows.in_flight import InFlight
from cdc_reader.streams.strategy import FEW_QUERIES, Strategy, StrategyChoice
from cdc_reader.streams.task import RangeTask
from pyspark_scylla_cdc.executors.reread import partitions_now
from pyspark_scylla_cdc.executors.timing import timed
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.late import ArrivalFilter, tasks_of
from pyspark_scylla_cdc.planning.partition import LatePartition, LogPartition, LogRead
from pyspark_scylla_cdc.planning.promise import report_lost_late_rows
from pyspark_scylla_cdc.planning.streams import PartitionKey, Streams
from pyspark_scylla_cdc.schema import part_of
from pyspark_scylla_cdc.sessions import (
    choice_of,
    cluster_for,
    partition_key_of,
    row_format,
    state_of,
    streams_loader,
)


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
    is_by_key = isinstance(partition, LatePartition) or partition.selects_by_key
    wanted = output.log_columns(names)
    choice = _choice(options, partition)
    more = (*(ROW_KEY if is_by_key else ()), *([STREAM_ID] if choice else ()))
    columns = _columns(schema, wanted, key, more)
    read = evolve(schema, columns=columns)
    cluster = cluster_for(options)
    source = cluster.source(read, tolerant=output.is_tolerant)
    if isinstance(partition, LatePartition):
        batches = _late_rows(options, source, partition)
    else:
        streams = streams_loader(options, schema.base)
        batches = _planned_rows(source, partition, streams, choice, clock)
        batches = _checked(options, batches, partition, clock)
    if key is not None:
        batches = key.rows(batches)
    if options.rereads_late_rows and isinstance(partition, LatePartition):
        return partitions_now(options, schema, names, batches, clock)
    return output.convert(batches, part_of(output.schema, names))


def _choice(
    options: SourceOptions, partition: LogPartition | LatePartition
) -> StrategyChoice | None:
    """Return this process's choice of a strategy, or None for few streams, which are read by id."""
    if isinstance(partition, LatePartition) or options.partition_key is not None:
        return None
    if partition.queries(tuning.STREAMS_PER_QUERY) <= FEW_QUERIES:
        return None
    return choice_of(options.connection(), options.table)


def _planned_rows(
    source: LogSource,
    partition: LogPartition,
    streams: Callable[[Micros], Streams],
    choice: StrategyChoice | None,
    clock: Clock,
) -> Iterator[pa.RecordBatch]:
    """Yield the partition's rows, and tell `choice` what the read costs."""
    chunk = tuning.STREAMS_PER_QUERY
    used = Strategy.STREAMS if choice is None else choice.next()
    reads = partition.reads(streams, used, chunk)
    rows = partial(task_rows, source, clock=clock, planned=partition.planned)
    found = read_ahead(rows, reads, InFlight())
    batches = (leave_out_keys(batch, partition.left_out) for _, batch in found)
    if choice is None:
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
        promise.check(partition.windows, options.table, state, clock.now())


def task_rows(
    source: LogSource, read: LogRead, clock: Clock, planned: ArrivalFilter | None = None
) -> Iterator[pa.RecordBatch]:
    """Request the first page of one query, and return its rows, or those that were `planned`."""
    batches = source.read(read.task, clock=None if planned is None else clock)
    own = read.streams.rows(batches) if isinstance(read.task, RangeTask) else batches
    return own if planned is None else planned.rows(own, clock)


def _late_rows(
    options: SourceOptions, source: LogSource, partition: LatePartition
) -> Iterator[pa.RecordBatch]:
    """Yield the late rows that the partition lists, and report listed rows that are gone."""
    missing = len(partition.names)
    for _, batch in read_tasks(source, tasks_of(partition.names), InFlight()):
        if (rows := rows_named(batch, partition.names)).num_rows:
            missing -= rows.num_rows
            yield rows
    if missing:
        report_lost_late_rows(missing, partition.window, options.table, options.data_loss)


def _columns(
    schema: LogSchema,
    wanted: Collection[Column],
    key: PartitionKey | None,
    more: Collection[str],
) -> tuple[Column, ...]:
    """Return the log columns to read: `wanted`, `more`, and the columns needed to select rows."""
    names = {column.name for column in (*wanted, *(key.columns if key else ()))} | set(more)
    return tuple(column for column in schema.columns if column.name in names)
