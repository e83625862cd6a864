"""Reads the rows of a partition, on an executor, in the requested format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import pyarrow as pa
from attrs import evolve
from pyspark.sql.datasource import InputPartition

from cdc_reader._time import Clock, Micros, SystemClock
from cdc_reader.cluster.schema import dropped
from cdc_reader.cql.schema import STREAM_ID, Column, LogSchema
from cdc_reader.errors import QueryRefusedError, SchemaError, TableNotFoundError
from cdc_reader.reading.deduplication import ROW_KEY
from cdc_reader.reading.fetch import read_ahead
from cdc_reader.reading.ports import LogSource
from cdc_reader.streams.strategy import Strategy
from pyspark_scylla_cdc.options.errors import hide_traceback, with_remedy
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.partition import LatePartition, LogPartition, SourcePartition
from pyspark_scylla_cdc.planning.snapshot import SnapshotPartition, read_span
from pyspark_scylla_cdc.planning.streams import PartitionKey, Streams
from pyspark_scylla_cdc.reading.page_memory import keep_freed
from pyspark_scylla_cdc.reading.sessions import (
    choice_of,
    connection_of,
    form_of,
    part_of,
    partition_key_of,
    share_rate,
    source_of,
    streams_loader,
    table_of,
)
from pyspark_scylla_cdc.reading.timing import timed

T = TypeVar("T")


def read_partition(
    options: SourceOptions,
    schema: LogSchema,
    names: Collection[str],
    partition: InputPartition,
    clock: Clock | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of any kind of partition of this source; None for another kind."""
    keep_freed()
    if isinstance(partition, SourcePartition):
        share_rate(options, partition.tasks)
    match partition:
        case LogPartition() | LatePartition():
            return read_log(options, schema, names, partition, clock or SystemClock())
        case SnapshotPartition():
            return read_snapshot(options, schema, names, partition)
    return iter(())


def read_log(
    options: SourceOptions,
    schema: LogSchema,
    names: Collection[str],
    partition: LogPartition | LatePartition,
    clock: Clock,
) -> Iterator[pa.RecordBatch]:
    """Yield the partition's rows in the requested format, with the columns `names`."""
    with hide_traceback(), with_remedy(), still_there(options, schema):
        yield from _formatted(options, schema, names, partition, clock)


@contextmanager
def still_there(options: SourceOptions, schema: LogSchema) -> Iterator[None]:
    """Raise a clear error if a query is refused because its table, log or a column is gone."""
    try:
        yield
    except QueryRefusedError:
        try:
            current = table_of(options).schema().base
        except TableNotFoundError:
            raise dropped(options.table) from None
        known = {column.name for column in current.columns}
        if lost := [column.name for column in schema.base.columns if column.name not in known]:
            columns = f"column {lost[0]} was" if len(lost) == 1 else f"{', '.join(lost)} were"
            raise SchemaError(
                f"{options.table}: {columns} dropped while the query ran: start the query again"
            ) from None
        raise


def _formatted(
    options: SourceOptions,
    schema: LogSchema,
    names: Collection[str],
    partition: LogPartition | LatePartition,
    clock: Clock,
) -> Iterator[pa.RecordBatch]:
    form = form_of(options, schema)
    key = partition_key_of(options, schema.base)
    is_by_key = isinstance(partition, LatePartition) or partition.planned is not None
    wanted = form.log_columns(names)
    columns = _columns(options, schema, wanted, key, ROW_KEY if is_by_key else ())
    read = evolve(schema, columns=columns)
    source = source_of(options.connection(), options.read, read, tolerant=form.is_tolerant)
    if isinstance(partition, LatePartition):
        batches = partition.rows(source, options.read.in_flight)
    else:
        batches = _read(options, source, partition, streams_loader(options, schema.base), clock)
    if key is not None:
        batches = key.rows(batches)
    typed = options.types.convert(batches, read.columns)
    return form.convert(typed, part_of(form, names))


def _read(
    options: SourceOptions,
    source: LogSource,
    partition: LogPartition,
    streams: Callable[[Micros], Streams],
    clock: Clock,
) -> Iterator[pa.RecordBatch]:
    """Yield the partition's rows, by the configured strategy or by the one this process chose.

    With `auto`, the process chooses by its own measurements.
    """
    chunk = options.read.chunk_size
    choice = choice_of(options.connection(), options.table, options.read_strategy)
    used = choice.next()
    reads = partition.reads(streams, used, chunk)
    planned = partition.planned
    sieve = None if planned is None else partial(planned.rows, clock=clock)
    batches = _read_ahead(lambda read: read.rows(source, sieve), reads, options.read.in_flight)
    if not choice.is_open:
        return batches
    size = {"streams": partition.streams, "queries": partition.queries(chunk)}
    return timed(batches, choice, used, SystemClock(), **size)


def _columns(
    options: SourceOptions,
    schema: LogSchema,
    wanted: Collection[Column],
    key: PartitionKey | None,
    more: Collection[str],
) -> tuple[Column, ...]:
    """Return the log columns to read: those wanted, those that identify the row, and `more`."""
    names = {column.name for column in (*wanted, *(key.columns if key else ()))} | set(more)
    if options.read_strategy is not Strategy.STREAMS:
        names.add(STREAM_ID)
    return tuple(column for column in schema.columns if column.name in names)


def read_snapshot(
    options: SourceOptions, schema: LogSchema, names: Collection[str], partition: SnapshotPartition
) -> Iterator[pa.RecordBatch]:
    """Yield the base table's rows in the requested format, with the columns `names`."""
    with hide_traceback(), with_remedy(), still_there(options, schema):
        form = form_of(options, schema)
        connection = connection_of(options.connection(), options.read)
        read = partial(read_span, connection, schema.base, tolerant=form.is_tolerant)
        batches = _read_ahead(read, partition.spans(), options.read.in_flight)
        typed = options.types.convert(batches, schema.base.columns)
        yield from form.snapshot(typed, part_of(form, names), partition.position)


def _read_ahead(
    read: Callable[[T], Iterator[pa.RecordBatch]], tasks: Iterable[T], in_flight: int
) -> Iterator[pa.RecordBatch]:
    return (batch for _, batch in read_ahead(read, tasks, in_flight))
