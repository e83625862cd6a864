"""Reads the log of one table, one task at a time, and provides its schema and generations.

A query selects partitions by an IN list of stream ids or by a token range. A token range needs
ALLOW FILTERING, although no row is filtered: the query reads a clustering range of each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen

from cdc_reader._arrow import scalar
from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, Clock, Micros
from cdc_reader.cluster.errors import most_keys
from cdc_reader.cluster.generations import TableGenerations
from cdc_reader.cluster.queries import Asking, Node, Queries, Query, Route, one_of_each
from cdc_reader.cluster.rows import CqlRowSource
from cdc_reader.cluster.schema import SchemaSource, dropped
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName, quoted
from cdc_reader.cql.schema import (
    OPERATION,
    STREAM_ID,
    TIME,
    Column,
    LogSchema,
    TableSchema,
    TableState,
)
from cdc_reader.cql.types import Native
from cdc_reader.decoding import Page, decode, warn_if_slow
from cdc_reader.decoding.tolerant import decode_tolerantly
from cdc_reader.errors import QueryRefusedError, SchemaError, TableNotFoundError, TransientError
from cdc_reader.reading.ports import EXPIRY
from cdc_reader.streams.task import RangeTask, Task

logger = get_logger(__name__)

T = TypeVar("T")


@frozen
class _Shape:
    """The CQL condition by which a kind of task selects partitions, and the condition's values."""

    partitions: str
    values: Callable[[Any], tuple[object, ...]]
    options: str = "BYPASS CACHE"


_STREAM, _TIME = quoted(STREAM_ID), quoted(TIME)
_SHAPES: Mapping[type, _Shape] = {
    Task: _Shape(f"{_STREAM} IN ?", lambda task: (list(task.streams),)),
    RangeTask: _Shape(
        f"token({_STREAM}) > ? AND token({_STREAM}) <= ?",
        lambda task: (task.start, task.end),
        "ALLOW FILTERING BYPASS CACHE",
    ),
}
_TIMES = f"{_TIME} >= ? AND {_TIME} < ?"
_REMAINING_TTL = Column(f"ttl({OPERATION})", Native("int"))
_SECOND = 1_000_000
_HAS_ROWS = attrgetter("num_rows")


class CqlLogSource:
    """The `LogSource` over CQL; checks that each result has the columns that its query names.

    With a `limit`, a query returns at most that many rows, or that many of each stream if
    `per_stream` is True. If `tolerant` is True, cells that cannot be decoded are null, and batches
    have one more column: see `cdc_reader.decoding.faults`.
    """

    def __init__(
        self,
        queries: Queries,
        schema: LogSchema,
        limit: int | None = None,
        *,
        tolerant: bool = False,
        per_stream: bool = False,
    ) -> None:
        self._queries = queries
        self._decode = decode_tolerantly if tolerant else decode
        self._expiry_place = len(schema.columns)
        clause = "" if limit is None else f"{'PER PARTITION ' if per_stream else ''}LIMIT {limit}"
        self._templates: dict[tuple[type, bool], Query] = {
            (kind, has_ttl): log_query(schema, kind, clause, has_ttl=has_ttl)
            for kind in _SHAPES
            for has_ttl in (False, True)
        }

    def read(
        self, task: Task | RangeTask, *, clock: Clock | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the task's rows, one batch per page; empty pages are skipped.

        If the task has more streams than the server allows in an IN list, several queries are sent.
        """
        warn_if_slow()
        first, *others = self._cut(task)
        batches = self._request(first, clock=clock)
        return self._rows(first, batches, others, clock=clock)

    def _request(self, task: Task | RangeTask, *, clock: Clock | None) -> Iterator[pa.RecordBatch]:
        times = timeuuid.bound(task.window.start), timeuuid.bound(task.window.end)
        values = (*_SHAPES[type(task)].values(task), *times)
        template = self._templates[type(task), clock is not None]
        query = evolve(template, values=values, route=_route(task))
        pages = self._queries.pages(query)
        return filter(_HAS_ROWS, map(partial(self._decoded, clock=clock), pages))

    def _rows(
        self,
        task: Task | RangeTask,
        batches: Iterator[pa.RecordBatch],
        others: Sequence[Task | RangeTask],
        *,
        clock: Clock | None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a requested task, then the rows of the tasks `others`, in order."""
        is_begun = False
        try:
            for batch in batches:
                is_begun = True
                yield batch
        except QueryRefusedError as error:
            if is_begun or not self._learn(task, error):
                raise
            yield from self.read(task, clock=clock)
        for other in others:
            yield from self.read(other, clock=clock)

    def _learn(self, task: Task | RangeTask, error: QueryRefusedError) -> bool:
        """Record the server's limit on streams per query; return True if the task exceeds it."""
        most = most_keys(str(error))
        if not most or not isinstance(task, Task) or len(task.streams) <= most:
            return False
        if self._queries.most_keys != most:
            logger.info("streams_per_query_limited", most=most)
        self._queries.most_keys = most
        return True

    def _decoded(self, page: Page, *, clock: Clock | None) -> pa.RecordBatch:
        """Decode a page; with a clock, replace its TTLs by the times at which they end."""
        batch = self._decode(page)
        if clock is None:
            return batch
        received = clock.now() - page.age
        left = pc.multiply(batch.column(self._expiry_place).cast(pa.int64()), scalar(_SECOND))
        return batch.set_column(self._expiry_place, EXPIRY, pc.add(left, scalar(received)))

    def _cut(self, task: Task | RangeTask) -> Sequence[Task | RangeTask]:
        """Split the task into parts within the server's limit on streams per query."""
        most = self._queries.most_keys
        if most is None or not isinstance(task, Task) or len(task.streams) <= most:
            return [task]
        streams = task.streams
        starts = range(0, len(streams), most)
        return [evolve(task, streams=streams[at : at + most]) for at in starts]


def _route(task: Task | RangeTask) -> Route | None:
    """Return the route to the owner of the last stream's range.

    The replicas of a range are its owner and the owners of the ranges after it. Neighboring ranges
    therefore share most replicas, and the last owner has most of the task's streams.
    """
    if isinstance(task, RangeTask) or not task.streams:
        return None
    return Route(task.streams[-1].token, is_exact=len(task.streams) == 1)


def log_query(schema: LogSchema, kind: type, limit: str = "", *, has_ttl: bool) -> Query:
    """Return the query for tasks of this kind, without values; `limit` is a clause of CQL.

    It names its columns, so a column added to the table does not change the result.
    """
    shape = _SHAPES[kind]
    selected = [quoted(column.name) for column in schema.columns]
    columns = schema.columns
    if has_ttl:
        selected, columns = [*selected, f"TTL({quoted(OPERATION)})"], (*columns, _REMAINING_TTL)
    where = " ".join(filter(None, (f"{shape.partitions} AND {_TIMES}", limit, shape.options)))
    cql = f"SELECT {', '.join(selected)} FROM {schema.name.cql} WHERE {where}"  # noqa: S608 - quoted
    return Query(cql, columns=columns, doing=f"reading {schema.name}")


class CdcTable(Asking):
    """The `SnapshotTable` over CQL, with vnodes or tablets.

    Reading a dropped table or column raises QueryRefusedError; `schema` then shows which of the two
    was dropped. A revoked permission raises PermissionDeniedError. These errors are not retried.
    """

    __slots__ = ("_tolerant",)

    def __init__(self, queries: Queries, name: TableName) -> None:
        self._queries = queries
        self._name = name
        self._tolerant = False
        self._generations = TableGenerations(queries, name)
        self._schema: LogSchema | None = None
        self._state: TableState | None = None

    def tolerant(self) -> CdcTable:
        """Return the table with sources that record cells that cannot be decoded as faults."""
        return self._view(_tolerant=True)

    @property
    def generations(self) -> TableGenerations:
        """The source of the table's generations."""
        return self._generations.over(self._queries)

    def moment(self, now: Micros, age: int) -> Micros:
        """See `LogTable.moment`."""
        return self._queries.shared.moment(now, age)

    def schema_version(self, since: Micros | None = None) -> str:
        """Return the queried node's schema version; results may alternate while nodes disagree."""
        return self._queries.schema_version(since)

    def schema_versions(self) -> Collection[str]:
        """Return the schema versions of all nodes."""
        return {*self._queries.schema_versions().values()}

    def schema(self) -> LogSchema:
        """Return the newest schema that a node has; for errors, see `SchemaSource.log_schema`.

        One node of each schema version is asked, and the last ALTER of the table is decisive. If
        the nodes of the most frequent version report an error, that error is raised.
        """
        found = self._found_by(lambda name: self._queries.retry(partial(self._of_nodes, name)))
        if self._schema is not None and _altered(self._schema.base) > _altered(found.base):
            found = evolve(self._schema, version=found.version)
        self._schema = found
        return found

    def state(self) -> TableState:
        """Return the table's current state, or a later one that was seen; costs one or two queries.

        The queries are small.
        """
        found = self._found_by(SchemaSource(self._queries).state)
        if self._state is None or _altered(found) >= _altered(self._state):
            self._state = found
        return self._state

    def _of_nodes(self, name: TableName) -> LogSchema:
        versions = self._queries.schema_versions()
        usual, *others = one_of_each(versions)
        found = [self._schema_at(usual, versions[usual], name)]
        for node in others:
            with suppress(SchemaError):
                found.append(self._schema_at(node, versions[node], name))
        return max(found, key=lambda schema: _altered(schema.base))

    def _schema_at(self, node: Node, version: str, name: TableName) -> LogSchema:
        """Return the schema that a node has at this version."""
        queries = self._queries.at(node)
        schema = SchemaSource(queries).log_schema(name)
        if queries.schema_version() != version:
            raise TransientError(f"the schema changed while that of {name} was read")
        return evolve(schema, version=version)

    def _found_by(self, read: Callable[[TableName], T]) -> T:
        """Return the result of `read`.

        If a table that was found before is missing, raises the error that `dropped` returns.
        """
        try:
            return read(self._name)
        except TableNotFoundError:
            if self._schema is not None or self._state is not None:
                raise dropped(self._name) from None
            raise

    def source(
        self,
        schema: LogSchema,
        limit: int | None = None,
        *,
        tolerant: bool = False,
        per_stream: bool = False,
    ) -> CqlLogSource:
        """Return a source of rows with the columns of `schema`, at most `limit` rows per task.

        If `per_stream` is True, the limit applies to each stream of a task. If `tolerant` is True,
        cells that cannot be decoded are recorded as faults and cause no error.
        """
        is_tolerant = tolerant or self._tolerant
        return CqlLogSource(
            self._queries, schema, limit, tolerant=is_tolerant, per_stream=per_stream
        )

    def rows(
        self,
        schema: LogSchema,
        *,
        cells: Sequence[str] = (),
        tokens: bool = False,
        tolerant: bool = False,
    ) -> CqlRowSource:
        """See `SnapshotTable.rows`."""
        is_tolerant = tolerant or self._tolerant
        return CqlRowSource(
            self._queries, schema.base, cells=cells, tokens=tokens, tolerant=is_tolerant
        )


def _altered(table: TableState | TableSchema) -> Micros:
    """Return the time of the last ALTER, or BEGINNING for a server that does not report it."""
    return BEGINNING if table.altered is None else table.altered
