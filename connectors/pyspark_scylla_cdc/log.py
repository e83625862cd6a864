"""The log as a process of Spark sees it: driver, planner or executor alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import pyarrow as pa

from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.driver import Connection, CqlLogSource, SchemaSource, TableGenerations
from cdc_reader.errors import SourceError, UnsupportedTableError
from cdc_reader.kernel import arrow_schema
from cdc_reader.log_reader import LogReader
from cdc_reader.planner import Planner
from cdc_reader.schema import LogSchema
from cdc_reader.task import Task
from cdc_reader.timeuuid import TICKS_PER_MICRO, UNIX_EPOCH_TICKS
from pyspark_scylla_cdc.options import SourceOptions

COMMIT_TIMESTAMP = pa.field("_commit_timestamp", pa.timestamp("us", tz="UTC"))
_LATE = 5_000_000
"""µs for which the server still takes writes into a generation that is over."""


def schema_of(options: SourceOptions) -> LogSchema:
    """The log table's schema as it is now; raises what keeps the table from being followed."""
    with options.blamed():
        connection = _connection(options.connection(), options.read)
        return SchemaSource(connection).log_schema(options.table)


def batch_schema(schema: LogSchema) -> pa.Schema:
    """The schema of the batches that Spark gets; UnsupportedTableError if a name is taken."""
    if any(column.name == COMMIT_TIMESTAMP.name for column in schema.base.columns):
        raise UnsupportedTableError(
            f"{schema.base.name} has a column {COMMIT_TIMESTAMP.name}, the name under which this "
            "source gives the time of a write: rename the column, or drop it and add it under "
            "another name"
        )
    return arrow_schema(schema.columns).append(COMMIT_TIMESTAMP)


def planner_of(options: SourceOptions) -> Planner:
    """What cuts windows of the log into tasks."""
    connection = _connection(options.connection(), options.read)
    generations = TableGenerations(connection, options.table)
    return Planner(generations, options.read.chunk_size)


def oldest_alive(planner: Planner, ttl: int, now: int) -> int:
    """When the oldest generation began whose rows may not all have expired, in µs.

    `ttl` is that of the log, in seconds; 0 keeps rows for good.
    """
    born = now - ttl * 1_000_000 - _LATE
    for span in planner.refresh().operating():
        if ttl == 0 or span.end > born:
            return span.start
    raise SourceError(
        "the cluster has published no CDC generation yet, and one was expected: "
        "wait until its nodes are up, and try again"
    )


def read_log(
    options: SourceOptions, schema: LogSchema, tasks: Iterable[Task]
) -> Iterator[pa.RecordBatch]:
    """The rows of the tasks, task after task, with the write time as a timestamp beside."""
    reader = _reader(options.connection(), options.read, schema)
    for batch in reader.read(tasks):
        times = _commit_timestamps(batch.column("cdc$time"))
        yield batch.append_column(COMMIT_TIMESTAMP, times)


@cache
def _connection(connection: ConnectionConfig, read: ReadConfig) -> Connection:
    """One connection for all that this process reads with the same settings.

    Spark reuses its Python processes from task to task; connecting costs more than a
    micro-batch does.
    """
    return Connection(connection, read)


@cache
def _reader(connection: ConnectionConfig, read: ReadConfig, schema: LogSchema) -> LogReader:
    """One reader for a log, whose statement is prepared once."""
    session = _connection(connection, read)
    source, generations = CqlLogSource(session, schema), TableGenerations(session, schema.base.name)
    return LogReader(source, generations, read)


def _commit_timestamps(times: pa.Array) -> pa.Array:
    return pa.array(map(_micros, times.to_pylist()), COMMIT_TIMESTAMP.type)


def _micros(time: str) -> int:
    """µs since 1970 of a time UUID in its canonical form."""
    ticks = int(time[15:18] + time[9:13] + time[:8], 16)
    return (ticks - UNIX_EPOCH_TICKS) // TICKS_PER_MICRO
