"""The log as a process of Spark sees it: driver, planner or executor alike."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache, lru_cache

import pyarrow as pa
from attrs import evolve

from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.driver import CdcTable, Connection
from cdc_reader.errors import CdcError, SourceError
from cdc_reader.generation import Timeline
from cdc_reader.ids import TableName
from cdc_reader.logs import get_logger
from cdc_reader.ports import LogSource
from cdc_reader.schema import LogSchema
from cdc_reader.task import RangeTask, Task
from cdc_reader.window import Window
from pyspark_scylla_cdc.formats import Format, ValueTypes, chosen, format_of
from pyspark_scylla_cdc.options import SourceOptions
from pyspark_scylla_cdc.partition import LogPartition, partitions
from pyspark_scylla_cdc.plan import divide, spans
from pyspark_scylla_cdc.streams import Streams

log = get_logger(__name__)

_LATE = 5_000_000
"""µs for which the server still takes writes into a generation that is over."""


def schema_of(options: SourceOptions) -> LogSchema:
    """The log table's schema as it is now, of the columns that are wanted; raises what keeps
    the table from being followed.
    """
    with options.blamed():
        return chosen(_table(options).schema(), options.columns)


def timeline_of(options: SourceOptions) -> Timeline:
    """The generations that are visible now."""
    return Timeline(tuple(_table(options).generations.timestamps()))


def plan(options: SourceOptions, timeline: Timeline, window: Window) -> list[LogPartition]:
    """The partitions that read `window`, which `timeline` must reach to the end of."""
    streams = _streams(options)
    parts = spans(timeline, window, lambda generation: len(streams(generation)))
    runs = divide(parts, options.min_partitions, options.max_partitions)
    return partitions(runs, streams)


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


def read_log(
    options: SourceOptions, schema: LogSchema, names: Collection[str], partition: LogPartition
) -> Iterator[pa.RecordBatch]:
    """The rows of the partition in the format asked for, with the columns `names`."""
    try:
        yield from _formatted(options, schema, names, partition)
    except CdcError as error:
        # Spark shows the whole traceback: of an error that says it all, one frame is enough.
        raise error.with_traceback(None) from None


def _formatted(
    options: SourceOptions, schema: LogSchema, names: Collection[str], partition: LogPartition
) -> Iterator[pa.RecordBatch]:
    form = form_of(options, schema)
    read = evolve(schema, columns=form.log_columns(names))
    source = _source(options.connection(), options.read, read)
    tasks = partition.tasks(_streams(options), options.strategy, options.read.chunk_size)
    batches = _read(source, tasks, options.read.in_flight)
    types = ValueTypes(options.decimal_type)
    typed = (types.convert(batch, read.columns) for batch in batches)
    return form.convert(typed, part_of(form, names))


def form_of(options: SourceOptions, schema: LogSchema) -> Format:
    """The format asked for; raises UnsupportedTableError if the table cannot be shown so."""
    return format_of(options.asked, schema, ValueTypes(options.decimal_type))


def part_of(form: Format, names: Iterable[str]) -> pa.Schema:
    """The columns `names` of a format."""
    return pa.schema([form.schema.field(name) for name in names])


def _read(
    source: LogSource, tasks: Iterable[Task | RangeTask], in_flight: int
) -> Iterator[pa.RecordBatch]:
    """The rows of `tasks`, task after task, with several of them under way at a time."""
    started: deque[Iterator[pa.RecordBatch]] = deque()
    for task in tasks:
        if len(started) >= in_flight:
            yield from started.popleft()
        started.append(source.read(task))
    while started:
        yield from started.popleft()


def _table(options: SourceOptions) -> CdcTable:
    return _table_of(options.connection(), options.read, options.table)


def _streams(options: SourceOptions) -> Callable[[int], Streams]:
    """What reads the streams of a generation, once."""
    connection = options.connection()

    def load(generation: int) -> Streams:
        return _streams_of(connection, options.read, options.table, generation)

    return load


@lru_cache(maxsize=4)
def _streams_of(
    connection: ConnectionConfig, read: ReadConfig, name: TableName, generation: int
) -> Streams:
    groups = _table_of(connection, read, name).generations.groups(generation)
    if not groups:
        log.warning("generation_without_streams", start=generation)
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
def _source(connection: ConnectionConfig, read: ReadConfig, schema: LogSchema) -> LogSource:
    """One source for a log, whose statement is prepared once."""
    return _table_of(connection, read, schema.base.name).source(schema)
