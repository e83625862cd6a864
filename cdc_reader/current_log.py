"""A table's log with the columns it has now, while they may change under the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from cdc_reader.errors import DecodeError, QueryRefusedError
from cdc_reader.ids import StreamId
from cdc_reader.logs import get_logger
from cdc_reader.pipeline import read_tasks
from cdc_reader.ports import LogSource, LogTable
from cdc_reader.progress import LAST_KEY, Mark
from cdc_reader.row_keys import STREAM, key_at, leave_out, streams_in
from cdc_reader.schema import LogSchema
from cdc_reader.task import RangeTask, Task

log = get_logger(__name__)


def _settled(_batch: pa.RecordBatch) -> bool:
    return False


class CurrentLog:
    """Reads tasks with the schema of the last `refresh`.

    A column added since is read from the next refresh on: refreshed after the clock was read,
    it is there in time for every row that has settled by then. A query refused because a
    column is gone, or a user-defined type that grew, makes it read the schema at once and go
    on where it was. What does not come from a change of schema is raised.

    A row that has not settled may have been written since the refresh, with a column that is
    newer. Where a batch `is_fresh`, that is, has rows of that kind to hand on, the schema is
    looked at once more before, and the batch read again if it changed.
    """

    def __init__(self, table: LogTable, in_flight: int) -> None:
        self._table = table
        self._in_flight = in_flight
        self._version: object = None
        self._opened: tuple[LogSchema, LogSource] | None = None

    @property
    def schema(self) -> LogSchema:
        """The schema as last seen."""
        return self._open()[0]

    def refresh(self) -> bool:
        """Look whether the schema changed, and say so."""
        version = self._table.schema_version()
        if version == self._version:
            return False
        self._version = version
        return self._reload()

    def read(
        self,
        tasks: Sequence[Task | RangeTask],
        *,
        remaining: bool = False,
        is_fresh: Callable[[pa.RecordBatch], bool] = _settled,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batches of `tasks` in their order, each with its task's number; none is empty."""
        delivered = _Delivered()
        while True:
            try:
                for number, batch in self._read(tasks, delivered, remaining=remaining):
                    if is_fresh(batch) and self.refresh():
                        break
                    yield number, batch
                    delivered.add(number, batch)
                else:
                    return
            except (QueryRefusedError, DecodeError):
                if not self._reload():
                    raise

    def _read(
        self, tasks: Sequence[Task | RangeTask], delivered: _Delivered, *, remaining: bool
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        before, first = delivered.marks(), delivered.task
        _, source = self._open()
        for number, batch in read_tasks(
            source, tasks[first:], self._in_flight, remaining=remaining
        ):
            rest = leave_out(batch, before)
            if rest.num_rows:
                yield first + number, rest

    def _open(self) -> tuple[LogSchema, LogSource]:
        if self._opened is None:
            schema = self._table.schema()
            self._opened = schema, self._table.source(schema)
        return self._opened

    def _reload(self) -> bool:
        """Read the schema again; whether it is another."""
        before, self._opened = self._opened, None
        schema, _ = self._open()
        if before is None or before[0] == schema:
            self._opened = before or self._opened
            return False
        log.info("schema_changed", table=str(schema.base.name))
        return True


class _Delivered:
    """What of a window has been handed on: tasks that are done, and how far the one at hand is.

    The rows of a task come stream after stream, so that of all its streams but the last one
    seen everything has been.
    """

    def __init__(self) -> None:
        self.task = 0
        self._streams: set[bytes] = set()
        self._last: pa.RecordBatch | None = None

    def add(self, task: int, batch: pa.RecordBatch) -> None:
        if task != self.task:
            self.task, self._streams = task, set()
        self._streams.update(streams_in(batch))
        self._last = batch.slice(batch.num_rows - 1)

    def marks(self) -> dict[StreamId, Mark]:
        done = {StreamId(stream): Mark(LAST_KEY) for stream in self._streams}
        if self._last is not None:
            last = StreamId(self._last.column(STREAM)[0].as_py())
            done[last] = Mark(key_at(self._last, 0))
        return done
