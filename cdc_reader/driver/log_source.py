"""Reading the log: one query a task, of a shape for each kind of task.

The shapes differ in how they name the partitions, and in nothing else: by an IN list of stream
ids, or by a span of tokens. The second slices each partition by its clustering key as the
first does; it is not filtering, but the server wants to be told that it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from attrs import evolve, frozen

from cdc_reader import timeuuid
from cdc_reader.cql_type import Native
from cdc_reader.driver.queries import Queries, Query
from cdc_reader.ids import quoted
from cdc_reader.ports import REMAINING
from cdc_reader.schema import Column, LogSchema
from cdc_reader.task import RangeTask, Task


@frozen
class _Shape:
    """How a kind of task names its partitions: in the query, and by which values."""

    partitions: str
    values: Callable[[Any], tuple[object, ...]]
    options: str = "BYPASS CACHE"


_SHAPES: Mapping[type, _Shape] = {
    Task: _Shape('"cdc$stream_id" IN ?', lambda task: (list(task.streams),)),
    RangeTask: _Shape(
        'token("cdc$stream_id") > ? AND token("cdc$stream_id") <= ?',
        lambda task: (task.start, task.end),
        "ALLOW FILTERING BYPASS CACHE",
    ),
}
_TIMES = '"cdc$time" >= ? AND "cdc$time" < ?'
_REMAINING = Column(REMAINING, Native("int"))


class CqlLogSource:
    """The `LogSource` over CQL: prepared queries, the columns by name and checked."""

    def __init__(self, queries: Queries, schema: LogSchema) -> None:
        self._queries = queries
        self._made: dict[tuple[type, bool], Query] = {
            (kind, remaining): log_query(schema, kind, remaining=remaining)
            for kind in _SHAPES
            for remaining in (False, True)
        }

    def read(self, task: Task | RangeTask, *, remaining: bool = False) -> Iterator[pa.RecordBatch]:
        """The task's rows, a batch a page; pages without rows are passed over."""
        times = timeuuid.bound(task.window.start), timeuuid.bound(task.window.end)
        values = (*_SHAPES[type(task)].values(task), *times)
        query = evolve(self._made[type(task), remaining], values=values)
        batches = self._queries.batches(query)
        return (batch for batch in batches if batch.num_rows)


def log_query(schema: LogSchema, kind: type, *, remaining: bool) -> Query:
    """The query of tasks of this kind, yet without values.

    It names the columns, so that a new one changes nothing.
    """
    shape = _SHAPES[kind]
    selected = [quoted(column.name) for column in schema.columns]
    columns = schema.columns
    if remaining:
        selected, columns = [*selected, 'TTL("cdc$operation")'], (*columns, _REMAINING)
    where = f"{shape.partitions} AND {_TIMES} {shape.options}"
    cql = f"SELECT {', '.join(selected)} FROM {schema.name.cql} WHERE {where}"  # noqa: S608 - quoted
    return Query(cql, columns=columns, doing=f"reading {schema.name}")
