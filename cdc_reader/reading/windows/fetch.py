"""Reads tasks several at a time, and yields their rows in task order.

`CurrentLog` reads a log with the table's current columns, and follows schema changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, starmap
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve

from cdc_reader._arrow import has_value
from cdc_reader._log import get_logger
from cdc_reader._time import Clock, Micros
from cdc_reader.cql.schema import END_OF_BATCH, FAULTS, STREAM_ID, TIME, LogSchema
from cdc_reader.errors import DecodeError, QueryRefusedError
from cdc_reader.reading.cursor import LAST_KEY, Checkpoint, Mark, check_same_table
from cdc_reader.reading.deduplication import ROW_KEY, key_at, leave_out, streams_in
from cdc_reader.reading.ports import LogSource, LogTable
from cdc_reader.reading.windows.in_flight import InFlight
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import RangeTask, Task

log = get_logger(__name__)

T = TypeVar("T")


class MayBeNewer(Protocol):
    """Returns whether the rows of a batch may be newer than the schema.

    `is_checked` is True if the schema was refreshed at all nodes since the read began.
    """

    def __call__(self, batch: pa.RecordBatch, *, is_checked: bool) -> bool: ...


def read_ahead(
    read: Callable[[T], Iterator[pa.RecordBatch]], tasks: Iterable[T], in_flight: InFlight
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches of `tasks`, task after task, each with its task's index.

    `read` requests a task's first page when it is called, and each further page before it yields
    the current one. As many tasks as `in_flight` allows have a page requested or ready at a time,
    so the memory used does not depend on the size of the tasks.
    """
    numbered, started = enumerate(tasks), deque[tuple[int, Iterator[pa.RecordBatch]]]()
    while True:
        while len(started) < in_flight.limit and (following := next(numbered, None)) is not None:
            number, task = following
            started.append((number, read(task)))
        if not started:
            return
        number, batches = started[0]
        with in_flight.adapting():
            batch = next(batches, None)
        if batch is None:
            started.popleft()
            continue
        in_flight.note(batch)
        yield number, batch


def read_tasks(
    source: LogSource,
    tasks: Iterable[Task | RangeTask],
    in_flight: InFlight,
    *,
    clock: Clock | None = None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Read `tasks` from `source`, and yield their batches as `read_ahead` does."""
    return read_ahead(partial(source.read, clock=clock), tasks, in_flight)


class KeyLog:
    """Reads tasks from one source, whose columns never change, as those of row keys."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._in_flight = InFlight()

    def read(
        self, tasks: Sequence[Task], *, clock: Clock | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the batches of `tasks` in order, each with its task's index."""
        return read_tasks(self._source, tasks, self._in_flight, clock=clock)


class _WholeRecords:
    """Divides the batches of tasks into batches of whole records.

    Rows of a record that spans pages are held until the record ends. All rows of a record therefore
    have the columns of one schema, even if reading continues with another schema. The tasks are
    numbered from `first` on, and the rows that `before` covers are left out.
    """

    def __init__(self, before: Mapping[StreamId, Mark], first: int) -> None:
        self._before = before
        self._first = first
        self._held: list[pa.RecordBatch] = []
        self._task = first

    def add(self, number: int, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """Return the rows of complete records, each batch with its task's index."""
        task, rows = self._first + number, leave_out(batch, self._before)
        ended = self.rest() if task != self._task else []
        self._task = task
        if not rows.num_rows:
            return ended
        if end := _end_of_records(rows):
            ended.append((task, self._joined(rows.slice(0, end))))
        if end < rows.num_rows:
            self._held.append(rows.slice(end))
        return ended

    def rest(self) -> list[tuple[int, pa.RecordBatch]]:
        """Return the rows of the last record of a task, which is complete."""
        return [(self._task, self._joined())] if self._held else []

    def _joined(self, *more: pa.RecordBatch) -> pa.RecordBatch:
        batches, self._held = [*self._held, *more], []
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _end_of_records(batch: pa.RecordBatch) -> int:
    """Return the number of rows in the batch that belong to complete records.

    The rows of the last record count only if the end of that record is marked. Before ScyllaDB 4.3,
    logs do not mark the end of a record, and all rows count.
    """
    rows: int = batch.num_rows
    if END_OF_BATCH not in batch.schema.names or batch.column(END_OF_BATCH)[rows - 1].as_py():
        return rows
    columns = (batch.column(name) for name in (STREAM_ID, TIME))
    last: int = pc.sum(pc.and_(*(pc.equal(cells, cells[rows - 1]) for cells in columns))).as_py()
    return rows - last


class CurrentLog:
    """Reads tasks with the schema of the last `refresh`.

    A column that is added later is read from the next refresh on. Refresh after reading the clock,
    so that the schema contains every column of the rows that had settled by that time. If a read
    fails because a column was dropped, or because a user-defined type has new fields, the schema is
    read again, and reading resumes after the last whole record. If the schema has not changed, the
    error is raised.

    The refreshed schema may lack a newer column: the node that was asked may lag, and a row that
    has not settled may have been written after the refresh. `read` therefore asks all nodes when
    a batch has arrived that may contain such rows.

    With `keys_only`, only the columns of `ROW_KEY` are read.

    The checkpoint `start` identifies the table. If the checkpoint has no table id, the first table
    found is used. Every method that reads the schema raises CheckpointError if it finds another
    table, or a table that was dropped and recreated.
    """

    def __init__(self, table: LogTable, start: Checkpoint, *, keys_only: bool = False) -> None:
        self._table = table
        self._keys_only = keys_only
        self._in_flight = InFlight()
        self._start = start
        self._version: str | None = None
        self._opened: tuple[LogSchema, LogSource] | None = None

    @property
    def schema(self) -> LogSchema:
        """The schema as last read. It is read on first use."""
        return self._open()[0]

    def with_table(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with the table's name and id, as far as they are known."""
        return evolve(checkpoint, table=self._start.table, table_id=self._start.table_id)

    def moment(self, now: Micros, age: int) -> Micros:
        """See `LogTable.moment`."""
        return self._table.moment(now, age)

    def refresh(self, since: Micros | None = None, *, of_all: bool = False) -> bool:
        """Read the schema again if a node, or one `of_all` nodes, has another version of it.

        Returns whether the schema differs. A version that was asked for at `since` may be used.
        """
        table = self._table
        found = table.schema_versions() if of_all else {table.schema_version(since)}
        return False if self._opened and found == {self._version} else self.reload()

    def reload(self) -> bool:
        """Read the schema again, and return whether it differs."""
        before, self._opened = self._opened, None
        schema, _ = self._open()
        if before is None or before[0] == schema:
            self._opened = before or self._opened
            return False
        log.info("schema_changed", table=str(schema.base.name))
        return True

    def read(
        self,
        tasks: Sequence[Task | RangeTask],
        *,
        clock: Clock | None = None,
        may_be_newer: MayBeNewer | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the batches of `tasks` in order, each with its task's index. No batch is empty.

        Before a batch for which `may_be_newer` is True, or with a cell that could not be decoded,
        the schema is refreshed at all nodes. If it has changed, the batch is read again.
        """
        done, is_checked = _Delivered(), False
        while True:
            _, source = self._open()
            records = _WholeRecords(done.marks(), done.task)
            found = read_tasks(source, tasks[done.task :], self._in_flight, clock=clock)
            whole = chain(starmap(records.add, found), map(_WholeRecords.rest, [records]))
            try:
                for task, rows in chain.from_iterable(whole):
                    is_newer = may_be_newer and may_be_newer(rows, is_checked=is_checked)
                    if is_newer or has_value(rows, FAULTS):
                        is_checked = True
                        if self.refresh(of_all=True):
                            break
                    done.add(task, rows)
                    yield task, rows
                else:
                    return
            except (QueryRefusedError, DecodeError):
                if not self.reload():
                    raise

    def _open(self) -> tuple[LogSchema, LogSource]:
        if self._opened is None:
            schema = self._table.schema()
            self._version = schema.version
            check_same_table(self._start, schema.base.name, schema.base.id)
            self._start = _as_of_table(self._start, schema)
            self._opened = schema, self._table.source(self._read_from(schema))
        return self._opened

    def _read_from(self, schema: LogSchema) -> LogSchema:
        """Return the schema with the columns to read."""
        if not self._keys_only:
            return schema
        return evolve(schema, columns=tuple(c for c in schema.columns if c.name in ROW_KEY))


def _as_of_table(checkpoint: Checkpoint, schema: LogSchema) -> Checkpoint:
    """Return the checkpoint with the table's name and, if it has no id yet, the table's id."""
    table_id = checkpoint.table_id or schema.base.id
    return evolve(checkpoint, table=schema.base.name, table_id=table_id)


class _Delivered:
    """The part of a window that was yielded: complete tasks, and part of the current one.

    A task's rows arrive stream by stream, so every stream but the last one seen is complete.
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
            last = StreamId(self._last.column(STREAM_ID)[0].as_py())
            done[last] = Mark(key_at(self._last, 0))
        return done
