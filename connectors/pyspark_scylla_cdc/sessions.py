"""Access to the table's schema, generations and log, for the driver and for executors.

The streams of generations are cached across tasks, because Spark reuses its Python processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache

from cdc_reader._log import get_logger
from cdc_reader._time import Clock, Micros
from cdc_reader.changes.frames import (
    Format,
    SnapshotFormat,
    format_of,
    project,
    snapshot_format_of,
)
from cdc_reader.cluster import CdcTable, ClusterClock, TableGenerations
from cdc_reader.cluster.generations import GenerationKind
from cdc_reader.cluster.schema import dropped
from cdc_reader.config import ConnectionConfig, LateRowsMode, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import LogSchema, TableSchema, TableState
from cdc_reader.errors import (
    ConfigurationError,
    QueryRefusedError,
    TableAlteredError,
    TableNotFoundError,
    UnsupportedTableError,
)
from cdc_reader.reading.loss import refuse_endless_snapshots
from cdc_reader.reading.ports import FixedStreams
from cdc_reader.streams.generation import StreamGroup, Timeline
from cdc_reader.streams.shard import MAX_TOKEN
from cdc_reader.streams.strategy import StrategyChoice
from pyspark_scylla_cdc.clusters import Cluster, cluster_of
from pyspark_scylla_cdc.options.errors import with_remedy
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.options.table import SchemaMode
from pyspark_scylla_cdc.planning.streams import PartitionKey, Streams

log = get_logger(__name__)

LONGEST_IDLE = 60_000_000
"""µs of write time after which the position of an idle stream advances."""


def schema_of(options: SourceOptions) -> LogSchema:
    """Return the current schema of the log table, with the wanted columns.

    Raises an error if the table cannot be followed.
    """
    with options.as_option_errors():
        schema = table_of(options).schema()
    options.check_start(schema.base.id)
    _check_key(options, schema.base)
    late_rows(options, schema.base)
    check_resnapshot(options, schema.base.cdc.ttl)
    return project(schema, options.format.columns)


def state_of(options: SourceOptions) -> TableState:
    """Return the table's current state: its id, and its log's TTL."""
    return table_of(options).state()


def generations_of(options: SourceOptions) -> TableGenerations:
    """Return the source of the table's generations."""
    return table_of(options).generations


def timeline_of(options: SourceOptions, *, of_all: bool = True) -> Timeline:
    """Return the generations that are visible now; see `GenerationSource.timestamps`."""
    return Timeline(tuple(generations_of(options).timestamps(of_all=of_all)))


def late_rows(options: SourceOptions, base: TableSchema) -> LateRowsMode:
    """Return how to treat late rows; raise ConfigurationError if they cannot be recognized."""
    if options.late_rows is None:
        return LateRowsMode.REPORT if base.cdc.ttl else LateRowsMode.IGNORE
    if options.late_rows is not LateRowsMode.IGNORE:
        check_ttl(base.cdc.ttl, options.late_rows)
    return options.late_rows


def check_ttl(ttl: int, mode: str) -> None:
    """Raise ConfigurationError if the log keeps rows forever."""
    if not ttl:
        remedy = (
            "the log keeps rows forever, but only a TTL shows when a row arrived: set the "
            "table's cdc ttl, or give 'ignore'"
        )
        raise ConfigurationError("lateRows", str(mode), remedy)


def check_resnapshot(options: SourceOptions, ttl: int) -> None:
    """Raise ConfigurationError if the log's TTL, in seconds, is too short for new snapshots."""
    if options.takes_new_snapshots:
        needed = 2 * options.confidence + LONGEST_IDLE
        refuse_endless_snapshots("onDataLoss", ttl, needed, "confidenceWindow")


def row_format(options: SourceOptions, schema: LogSchema) -> Format:
    """Return the requested format; raise UnsupportedTableError if the log does not support it."""
    with with_remedy():
        return format_of(options.format, schema)


def snapshot_format(options: SourceOptions, schema: LogSchema) -> SnapshotFormat:
    """Return the requested format of a snapshot's rows; raise errors as `row_format` does."""
    with with_remedy():
        return snapshot_format_of(options.format, schema)


def refuse_new_columns(
    options: SourceOptions, known: Collection[str], names: Collection[str]
) -> None:
    """Raise TableAlteredError for columns in `known` but not in `names`, unless allowed."""
    new = [name for name in known if name not in names]
    if new and options.schema_mode is SchemaMode.FAIL:
        raise TableAlteredError(
            f"{options.table} has columns that the DataFrame lacks ({', '.join(new)}), and "
            "schemaMode is 'fail': load it again"
        )


def is_altered(options: SourceOptions, schema: LogSchema, names: Collection[str]) -> bool:
    """Return whether the table now has other columns than `names`, or other types than `schema`."""
    known, now = (row_format(options, each).schema for each in (schema, schema_of(options)))
    there = {field.name: field.type for field in now}
    return there != {name: known.field(name).type for name in names}


def check_columns(options: SourceOptions, names: Collection[str]) -> None:
    """Raise TableAlteredError if the table has new columns, as `refuse_new_columns` does.

    Reads the table's current columns if the options do not allow new columns.
    """
    if options.schema_mode is SchemaMode.FAIL:
        known = row_format(options, schema_of(options)).schema.names
        refuse_new_columns(options, known, names)


@contextmanager
def still_there(options: SourceOptions, schema: LogSchema) -> Iterator[None]:
    """Raise a clear error if a query is rejected because of a dropped table, log or column."""
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
            raise TableAlteredError(
                f"{options.table}: {columns} dropped while the query ran: start the query again"
            ) from None
        raise


def cluster_for(options: SourceOptions) -> Cluster:
    """Return the query's cluster, over this process's connection."""
    return cluster_of(options.connection(), options.read)


def table_of(options: SourceOptions) -> CdcTable:
    """Return the table, over this process's connection."""
    return cluster_for(options).table(options.table)


def _check_key(options: SourceOptions, base: TableSchema) -> None:
    """Raise an error if the streams of the partition key cannot be determined."""
    if partition_key_of(options, base) is None:
        return
    if generations_of(options).source.kind is GenerationKind.SCYLLA_43:
        raise UnsupportedTableError(
            "ScyllaDB 4.3 does not publish token ranges, so the stream of a key cannot be "
            "determined: leave partitionKey out, or upgrade the cluster to 4.4 or later"
        )


def partition_key_of(options: SourceOptions, base: TableSchema) -> PartitionKey | None:
    """Return the only partition to read, or None if all partitions are read."""
    if options.partition_key is None:
        return None
    return PartitionKey.parse(options.partition_key, base)


def streams_loader(options: SourceOptions, base: TableSchema) -> Callable[[Micros], Streams]:
    """Return a cached function that loads the streams of a generation.

    With option `partitionKey`, it loads only the streams that may contain this partition.
    """
    connection = options.connection()

    def load(generation: Micros) -> Streams:
        return _streams_of(connection, options.read, base, generation, options.partition_key or "")

    return load


def loaded_generations(options: SourceOptions, base: TableSchema) -> FixedStreams:
    """Return a source of the streams that `streams_loader` loads, in one group in ring order."""
    load = streams_loader(options, base)

    def groups(start: Micros) -> Sequence[StreamGroup]:
        streams = load(start)
        return [StreamGroup(MAX_TOKEN, tuple(streams))] if len(streams) else []

    return FixedStreams(groups)


@lru_cache(maxsize=4)
def _streams_of(
    connection: ConnectionConfig, read: ReadConfig, base: TableSchema, generation: Micros, key: str
) -> Streams:
    groups = cluster_of(connection, read).table(base.name).generations.groups(generation)
    if not groups:
        log.warning("generation_without_streams", start=generation)
    if key:
        groups = PartitionKey.parse(key, base).group(groups)
    return Streams.of(groups)


def ends_of(options: SourceOptions, generation: Micros | None) -> Sequence[int]:
    """Return the tokens at which owners change, ascending, or () if `generation` is None."""
    if generation is None:
        return ()
    return _ends_of(options.connection(), options.read, options.table, generation)


@lru_cache(maxsize=4)
def _ends_of(
    connection: ConnectionConfig, read: ReadConfig, name: TableName, generation: Micros
) -> Sequence[int]:
    groups = cluster_of(connection, read).table(name).generations.groups(generation)
    return tuple(sorted(group.range_end for group in groups))


class SourceClock:
    """The clock of a query's cluster, as measured in the current process.

    It can be pickled. `own` replaces the machine's clock in tests.
    """

    def __init__(self, options: SourceOptions, own: Clock | None = None) -> None:
        self._options = options
        self._own = own

    def __reduce__(self) -> tuple[type[SourceClock], tuple[object, ...]]:
        return type(self), (self._options, self._own)

    def now(self) -> Micros:
        """Return the cluster's time, in µs since 1970; see `ClusterClock.now`."""
        return self._cluster.now()

    def sleep(self, micros: int, wake: threading.Event) -> None:
        """Return after `micros` µs, or as soon as `wake` is set."""
        self._cluster.sleep(micros, wake)

    def correction(self) -> int:
        """Return the cluster's time minus the machine's; see `ClusterClock.correction`."""
        return self._cluster.correction()

    @cached_property
    def _cluster(self) -> ClusterClock:
        cluster = cluster_for(self._options)
        if self._own is None:
            return cluster.clock
        return ClusterClock.of(cluster.connection, self._own)


def share_rate(options: SourceOptions, tasks: int) -> None:
    """Limit this process to its share of the page rate of a query with `tasks` tasks.

    A Python process of Spark runs one task at a time.
    """
    if (limit := options.read.max_queries_per_second) is not None:
        connection = cluster_for(options).connection
        connection.throttle.set_limit(limit / tasks)


@cache
def choice_of(connection: ConnectionConfig, name: TableName) -> StrategyChoice:
    """Return this process's strategy choice, with its measurements of earlier partitions."""
    del connection, name  # one choice per combination
    return StrategyChoice()
