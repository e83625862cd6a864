"""Reading the log by chunks of streams: one query with an IN list a task."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import pyarrow as pa
from cassandra.query import PreparedStatement

from cdc_reader import timeuuid
from cdc_reader.driver.request import Page, Query
from cdc_reader.driver.session import Connection
from cdc_reader.ids import quoted
from cdc_reader.kernel import decode
from cdc_reader.kernel.metadata import check_same
from cdc_reader.schema import LogSchema
from cdc_reader.task import Task


class StreamsLogSource:
    """The `LogSource` that asks for the streams of a task by their ids.

    The first page carries metadata, which is checked against the schema; from then on the
    driver leaves it out. When the table is altered the driver prepares the statement again,
    on its own, and what that promises is checked too.
    """

    def __init__(self, connection: Connection, schema: LogSchema) -> None:
        self._connection = connection
        self._columns = schema.columns
        self._cql = streams_query(schema)
        self._doing = f"reading {schema.name}"

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        """The task's rows, a batch a page; pages without rows are passed over."""
        start, end = timeuuid.bound(task.window.start), timeuuid.bound(task.window.end)
        bound = self._statement.bind((list(task.streams), start, end))
        return self._batches(self._connection.pages(Query(bound, None, self._doing)))

    def _batches(self, pages: Iterator[Page]) -> Iterator[pa.RecordBatch]:
        for page in pages:
            promised = page.rows.promised
            if promised is not None and promised is not self._columns:
                check_same(promised, self._columns)
            batch = decode(page.rows.body, self._columns)
            self._statement.result_metadata = self._columns
            if batch.num_rows:
                yield batch

    @cached_property
    def _statement(self) -> PreparedStatement:
        return self._connection.prepare(self._cql, self._doing)


def streams_query(schema: LogSchema) -> str:
    """The statement of one task; columns by name, so that a new column changes nothing."""
    columns = ", ".join(quoted(column.name) for column in schema.columns)
    where = '"cdc$stream_id" IN ? AND "cdc$time" >= ? AND "cdc$time" < ?'
    return f"SELECT {columns} FROM {schema.name.cql} WHERE {where} BYPASS CACHE"  # noqa: S608 - quoted
