"""The log as a process of Spark sees it: driver, planner or executor alike."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from typing import TypeVar

import pyarrow as pa
from attrs import evolve
from pyspark.sql.datasource import InputPartition

from cdc_reader import timeuuid
from cdc_reader.clock import SystemClock
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.driver import CdcTable, Connection, TableGenerations
from cdc_reader.driver.generations import KnownSource
from cdc_reader.driver.schema_source import dropped
from cdc_reader.duration import micros
from cdc_reader.errors import (
    QueryRefusedError,
    SchemaError,
    SourceError,
    TableNotFoundError,
    UnsupportedTableError,
)
from cdc_reader.generation import Timeline
from cdc_reader.ids import TableName
from cdc_reader.logs import get_logger
from cdc_reader.ports import GenerationSource, LogSource
from cdc_reader.row_keys import STREAM
from cdc_reader.schema import Column, LogSchema, TableSchema
from cdc_reader.strategy import Strategy, StrategyChoice
from cdc_reader.window import BEGINNING, FOREVER, Window
from pyspark_scylla_cdc.formats import Format, ValueTypes, chosen, format_of
from pyspark_scylla_cdc.formats.row_changes import SEQUENCE
from pyspark_scylla_cdc.measured import measured
from pyspark_scylla_cdc.option_table import SchemaMode
from pyspark_scylla_cdc.options import SourceOptions
from pyspark_scylla_cdc.page_memory import keep_freed
from pyspark_scylla_cdc.partition import LogPartition, partitions
from pyspark_scylla_cdc.partition_key import PartitionKey
from pyspark_scylla_cdc.plan import divide, slices, spans
from pyspark_scylla_cdc.refusal import told_plainly, with_remedy
from pyspark_scylla_cdc.row_limit import RowLimit
from pyspark_scylla_cdc.snapshot import SnapshotPartition, read_span
from pyspark_scylla_cdc.streams import Streams

T = TypeVar("T")

log = get_logger(__name__)

_LATE = 5_000_000
"""µs for which the server still takes writes into a generation that is over."""
_ID = "SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"


def schema_of(options: SourceOptions) -> LogSchema:
    """The log table's schema as it is now, of the columns that are wanted; raises what keeps
    the table from being followed.
    """
    with options.blamed():
        schema = _table(options).schema()
    _check_key(options, schema.base)
    return chosen(schema, options.columns)


def refuse_new_columns(
    options: SourceOptions, known: Collection[str], names: Collection[str]
) -> None:
    """Raise SchemaError if there are more columns than a DataFrame's, and that is to be told."""
    new = [name for name in known if name not in names]
    if new and options.schema_mode is SchemaMode.FAIL:
        raise SchemaError(
            f"{options.table} has columns that the DataFrame lacks ({', '.join(new)}), and "
            "schemaMode is 'fail': load it again"
        )


def check_columns(options: SourceOptions, names: Collection[str]) -> None:
    """Raise SchemaError as `refuse_new_columns` does, by the schema that the table has now."""
    if options.schema_mode is SchemaMode.FAIL:
        known = form_of(options, schema_of(options)).schema.names
        refuse_new_columns(options, known, names)


def generations_of(options: SourceOptions) -> GenerationSource:
    """The generations of the table."""
    return _table(options).generations


def timeline_of(options: SourceOptions) -> Timeline:
    """The generations that are visible now."""
    return Timeline(tuple(generations_of(options).timestamps()))


def plan(
    options: SourceOptions,
    base: TableSchema,
    timeline: Timeline,
    window: Window,
    filled: Window | None = None,
) -> list[LogPartition]:
    """The partitions that read `window`, which `timeline` must reach to the end of.

    With `filled`, where rows are to be expected, the time of a stream may be spread over several
    partitions; without, only if there are fewer streams than there are to be partitions.
    """
    streams = _streams(options, base)
    least = options.min_partitions
    most = options.max_partitions if options.partition_key is None else least
    parts = spans(timeline, window, lambda generation: len(streams(generation)), filled)
    count = 1 if filled is None else slices(parts, most, options.read.chunk_size)
    return partitions(divide(parts, least, most, count), streams)


def expected(options: SourceOptions, window: Window) -> Window:
    """The part of the window in which the log was there: its table's id tells since when."""
    created = _created(options.connection(), options.read, options.table)
    return Window(max(window.start, created), window.end)


def row_limit(options: SourceOptions, schema: LogSchema) -> Callable[[Window], int]:
    """What tells where a window ends that holds as many rows as a micro-batch may."""
    columns = tuple(column for column in schema.columns if column.name == SEQUENCE)
    source = _source(options.connection(), options.read, evolve(schema, columns=columns))
    streams = _streams(options, schema.base)
    shortest = micros(options.min_advance)
    limit = RowLimit(source, streams, options.max_rows or FOREVER, shortest)

    def end(window: Window) -> int:
        timeline = timeline_of(options)
        return limit.end(window, lambda part: spans(timeline, part, lambda g: len(streams(g))))

    return end


def oldest_alive(timeline: Timeline, ttl: int, now: int) -> int:
    """When the oldest generation began whose rows may not all have expired, in µs.

    `ttl` is that of the log, in seconds; 0 keeps rows for good.
    """
    born = now - ttl * 1_000_000 - _LATE
    for span in timeline.operating():
        if ttl == 0 or span.end > born:
            return span.start
    raise SourceError(
        "the cluster has published no CDC generation yet, and one was expected: "
        "wait until its nodes are up, and try again"
    )


def read_partition(
    options: SourceOptions, schema: LogSchema, names: Collection[str], partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition of either kind; of any other kind there are none."""
    keep_freed()
    match partition:
        case LogPartition():
            return read_log(options, schema, names, partition)
        case SnapshotPartition():
            return read_snapshot(options, schema, names, partition)
    return iter(())


def read_log(
    options: SourceOptions, schema: LogSchema, names: Collection[str], partition: LogPartition
) -> Iterator[pa.RecordBatch]:
    """The rows of the partition in the format asked for, with the columns `names`."""
    with told_plainly(), with_remedy(), _still_there(options):
        yield from _formatted(options, schema, names, partition)


@contextmanager
def _still_there(options: SourceOptions) -> Iterator[None]:
    """A query that is refused because its table is gone, or has no log any more, told so."""
    try:
        yield
    except QueryRefusedError:
        try:
            schema_of(options)
        except TableNotFoundError:
            raise dropped(options.table) from None
        raise


def _formatted(
    options: SourceOptions, schema: LogSchema, names: Collection[str], partition: LogPartition
) -> Iterator[pa.RecordBatch]:
    form = form_of(options, schema)
    key = _key(options, schema.base)
    read = evolve(schema, columns=_columns(options, schema, form.log_columns(names), key))
    source = _source(options.connection(), options.read, read)
    batches = _read(options, source, partition, _streams(options, schema.base))
    if key is not None:
        batches = key.rows(batches)
    typed = ValueTypes(options.decimal_type).convert(batches, read.columns)
    return form.convert(typed, part_of(form, names))


def _read(
    options: SourceOptions,
    source: LogSource,
    partition: LogPartition,
    streams: Callable[[int], Streams],
) -> Iterator[pa.RecordBatch]:
    """The rows of the partition, in the way that is set or, by what this process measured,
    chosen.
    """
    chunk = options.read.chunk_size
    choice = _choice(options.connection(), options.table, _strategy(options))
    used = choice.next()
    reads = partition.reads(streams, used, chunk)
    batches = _started_ahead(lambda read: read.rows(source), reads, options.read.in_flight)
    if not choice.is_open:
        return batches
    size = {"streams": partition.streams, "queries": partition.queries(chunk)}
    return measured(batches, choice, used, SystemClock(), **size)


def _strategy(options: SourceOptions) -> Strategy:
    """The way that is asked for; the few streams of a key are asked for by their ids."""
    return options.strategy if options.partition_key is None else Strategy.STREAMS


def _columns(
    options: SourceOptions, schema: LogSchema, wanted: Collection[Column], key: PartitionKey | None
) -> tuple[Column, ...]:
    """The columns of the log to read: those wanted, and those that tell whose row it is."""
    names = {column.name for column in (*wanted, *(key.columns if key else ()))}
    if _strategy(options) is not Strategy.STREAMS:
        names.add(STREAM)
    return tuple(column for column in schema.columns if column.name in names)


def read_snapshot(
    options: SourceOptions, schema: LogSchema, names: Collection[str], partition: SnapshotPartition
) -> Iterator[pa.RecordBatch]:
    """The rows of the base table in the format asked for, with the columns `names`."""
    with told_plainly(), with_remedy(), _still_there(options):
        form = form_of(options, schema)
        connection = _connection(options.connection(), options.read)
        read = partial(read_span, connection, schema.base)
        batches = _started_ahead(read, partition.spans(), options.read.in_flight)
        typed = ValueTypes(options.decimal_type).convert(batches, schema.base.columns)
        yield from form.snapshot(typed, part_of(form, names), partition.position)


def form_of(options: SourceOptions, schema: LogSchema) -> Format:
    """The format asked for; raises UnsupportedTableError if the table cannot be shown so."""
    return format_of(options.asked, schema, ValueTypes(options.decimal_type))


def part_of(form: Format, names: Iterable[str]) -> pa.Schema:
    """The columns `names` of a format."""
    return pa.schema([form.schema.field(name) for name in names])


def _started_ahead(
    read: Callable[[T], Iterator[pa.RecordBatch]], tasks: Iterable[T], in_flight: int
) -> Iterator[pa.RecordBatch]:
    """The rows of `tasks`, task after task, with several of them under way at a time."""
    started: deque[Iterator[pa.RecordBatch]] = deque()
    for task in tasks:
        if len(started) >= in_flight:
            yield from started.popleft()
        started.append(read(task))
    while started:
        yield from started.popleft()


def _table(options: SourceOptions) -> CdcTable:
    return _table_of(options.connection(), options.read, options.table)


def _check_key(options: SourceOptions, base: TableSchema) -> None:
    """Raise what keeps the streams of the partition key from being known."""
    if _key(options, base) is not None and _generations(options).kind == "4.3":
        raise UnsupportedTableError(
            "ScyllaDB 4.3 does not publish token ranges, so the stream of a key cannot be told: "
            "leave partitionKey out, or upgrade the cluster to 4.4 or later"
        )


def _generations(options: SourceOptions) -> KnownSource:
    connection = _connection(options.connection(), options.read)
    return TableGenerations(connection, options.table).source


def _key(options: SourceOptions, base: TableSchema) -> PartitionKey | None:
    if options.partition_key is None:
        return None
    return PartitionKey.parse(options.partition_key, base)


def _streams(options: SourceOptions, base: TableSchema) -> Callable[[int], Streams]:
    """What reads the streams of a generation, or of it those of the partition key; once."""
    connection = options.connection()

    def load(generation: int) -> Streams:
        return _streams_of(connection, options.read, base, generation, options.partition_key or "")

    return load


@lru_cache(maxsize=4)
def _streams_of(
    connection: ConnectionConfig, read: ReadConfig, base: TableSchema, generation: int, key: str
) -> Streams:
    groups = _table_of(connection, read, base.name).generations.groups(generation)
    if not groups:
        log.warning("generation_without_streams", start=generation)
    if key:
        groups = PartitionKey.parse(key, base).group(groups)
    return Streams.of(groups)


@cache
def _connection(connection: ConnectionConfig, read: ReadConfig) -> Connection:
    """One connection for all that this process reads with the same settings.

    Spark reuses its Python processes from task to task; connecting costs more than a
    micro-batch does.
    """
    return Connection(connection, read)


@cache
def _table_of(connection: ConnectionConfig, read: ReadConfig, name: TableName) -> CdcTable:
    return CdcTable(_connection(connection, read), name)


@cache
def _created(connection: ConnectionConfig, read: ReadConfig, name: TableName) -> int:
    """When the log's table was made, in µs; BEGINNING if its id is none that tells."""
    found = _connection(connection, read).rows(_ID, name.keyspace, name.log.name)
    made = [uuid.UUID(row["id"]) for row in found]
    return max((timeuuid.micros(id_.bytes) for id_ in made if id_.version == 1), default=BEGINNING)


@cache
def _choice(connection: ConnectionConfig, name: TableName, wanted: Strategy) -> StrategyChoice:
    """What this process found out about reading a log, from partition to partition."""
    del connection, name  # one choice for each
    return StrategyChoice(wanted)


@cache
def _source(connection: ConnectionConfig, read: ReadConfig, schema: LogSchema) -> LogSource:
    """One source for a log, whose statement is prepared once."""
    return _table_of(connection, read, schema.base.name).source(schema)
