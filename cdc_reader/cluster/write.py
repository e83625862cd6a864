"""Executes prepared statements; statements for one partition are combined into one mutation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, cast

from attrs import field, frozen
from cassandra import ConsistencyLevel
from cassandra.query import (
    UNSET_VALUE,
    BatchStatement,
    BatchType,
    BoundStatement,
    PreparedStatement,
)
from cassandra.query import Statement as DriverStatement

from cdc_reader.cluster.connection import PREPARED, Connection
from cdc_reader.cluster.errors import request_error
from cdc_reader.cluster.queries import Query
from cdc_reader.cluster.values import to_driver
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.schema import Column
from cdc_reader.cql.statement import UNSET, Statement
from cdc_reader.decoding import decode
from cdc_reader.errors import CdcError
from cdc_reader.reading.retry import Interruptible

_BATCH_BYTES = 50_000

_BATCH_STATEMENTS = 200
"""The limits of a batch. The server warns about batches of 128 KiB and rejects batches of 1 MiB."""

_NONE: tuple[object, Sequence[Callable[[Any], Any]]] = (None, ())


@frozen
class Write:
    """An INSERT, UPDATE or DELETE with a ``?`` for each of its values.

    A write must be safe to repeat, so it needs a timestamp or a condition.
    """

    cql: str
    values: tuple[object, ...] = field(repr=lambda values: f"<{len(values)} values>")


class Statements(Interruptible):
    """Executes statements over a connection at one consistency level; thread-safe.

    Transient failures are retried. Raises only errors of `cdc_reader.errors`, which say what the
    statement was for.
    """

    __slots__ = ("_connection",)
    _waiting = "_connection"

    def __init__(self, connection: Connection, consistency: str, doing: str) -> None:
        self._connection = connection
        self._consistency = consistency
        self._level = ConsistencyLevel.name_to_value[consistency]
        is_local = consistency.startswith("LOCAL_")
        self._serial = ConsistencyLevel.LOCAL_SERIAL if is_local else ConsistencyLevel.SERIAL
        self._doing = doing

    def define(self, cql: str) -> None:
        """Execute a schema statement, which has no values."""
        self._connection.execute(lambda: cql, self._doing)

    def write(self, writes: Sequence[Write]) -> None:
        """Apply the writes, atomically if they belong to one partition."""
        if len(writes) == 1:
            self._connection.execute(lambda: self._bound(writes[0]), self._doing)
        elif writes:
            self._connection.execute(lambda: self._batch(writes), self._doing)

    def write_if(self, writes: Sequence[Write]) -> dict[str, Any]:
        """Apply the writes, which belong to one partition, if their conditions are met.

        Returns the server's response: `[applied]`, and the previous values of the columns in the
        conditions.
        """
        found = self._connection.execute(lambda: self._batch(writes, self._serial), self._doing)
        [page] = found.current_rows
        first, *_ = decode(page).to_pylist()  # the rows, one per statement, are equal
        return cast("dict[str, Any]", first)

    def rows(
        self, cql: str, values: tuple[object, ...], columns: tuple[Column, ...]
    ) -> list[dict[str, Any]]:
        """Return all rows of a query whose result has these columns, each as a dict by column."""
        query = Query(cql, values, columns, self._consistency, self._doing)
        return [row for batch in self._connection.batches(query) for row in batch.to_pylist()]

    def close(self) -> None:
        """Close the connection; a later use reopens it."""
        self._connection.close()

    def _bound(self, write: Write) -> DriverStatement:
        bound = self._statement(write.cql).bind(write.values)
        bound.consistency_level = self._level
        return bound

    def _batch(self, writes: Sequence[Write], serial: int | None = None) -> DriverStatement:
        """Make an unlogged batch; within one partition, it is applied atomically, as one write."""
        batch = BatchStatement(
            BatchType.UNLOGGED, consistency_level=self._level, serial_consistency_level=serial
        )
        for write in writes:
            batch.add(self._statement(write.cql), write.values)
        return batch

    def _statement(self, cql: str) -> PreparedStatement:
        return self._connection.prepare(cql, self._doing)


class CqlWriter(Interruptible):
    """Writes to a cluster, with the retries and timeouts of its configuration; thread-safe.

    Statements must be idempotent: a statement whose response is lost is sent again.
    """

    __slots__ = ("_connection",)
    _waiting = "_connection"

    def __init__(self, config: ConnectionConfig | str, read: ReadConfig | None = None) -> None:
        self._connection = Connection(config, read or ReadConfig())
        self._known: dict[str, tuple[object, Sequence[Callable[[Any], Any]]]] = {}

    def write(self, statements: Sequence[Statement]) -> None:
        """Execute statements of one partition, as a single write unless it would be too large.

        Raises only errors of `cdc_reader.errors`.
        """
        self.write_all([[statements]])

    def write_all(self, rounds: Iterable[Sequence[Sequence[Statement]]]) -> None:
        """Execute rounds of statements, each round after the previous one.

        A round consists of one sequence of statements for each of several partitions. The sequences
        are executed concurrently, while the next round is computed. Raises only errors of
        `cdc_reader.errors`. After an error, some statements of the round may have been executed.
        """
        under_way: list[Callable[[], object]] = []
        try:
            for partitions in rounds:
                batches = [list(_batches(list(map(self._bind, each)))) for each in partitions]
                for step in zip_longest(*batches):  # a partition's batches go one after another
                    _finish(under_way)
                    under_way.extend(
                        self._connection.send(it, "writing") for it in step if it is not None
                    )
        finally:
            _finish(under_way)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _bind(self, statement: Statement) -> BoundStatement:
        values = [
            UNSET_VALUE if value is UNSET else convert(value)
            for convert, value in zip(self._converters(statement), statement.values, strict=True)
        ]
        prepared = self._connection.prepare(statement.cql, statement.cql)
        try:
            return prepared.bind(values)
        except Exception as error:
            raise request_error(error, statement.cql) from error

    def _converters(self, statement: Statement) -> Sequence[Callable[[Any], Any]]:
        """Return the functions that convert the statement's values, cached by CQL text."""
        types, converters = self._known.get(statement.cql, _NONE)
        if types is not statement.types:
            converters = tuple(map(to_driver, statement.types))
            if len(self._known) >= PREPARED:
                self._known.clear()
            self._known[statement.cql] = statement.types, converters
        return converters


def _finish(under_way: list[Callable[[], object]]) -> None:
    """Wait for all requests and clear the list; then raise the first error, if any."""
    errors = []
    while under_way:
        try:
            under_way.pop(0)()
        except CdcError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _batches(bound: Sequence[BoundStatement]) -> Iterator[Any]:
    """Group the statements into batches of allowed size; a single statement stays as it is."""
    together: list[BoundStatement] = []
    size = 0
    for statement in bound:
        length = sum(len(value) for value in statement.values if isinstance(value, bytes))
        if together and (size + length > _BATCH_BYTES or len(together) == _BATCH_STATEMENTS):
            yield _joined(together)
            together, size = [], 0
        together.append(statement)
        size += length
    if together:
        yield _joined(together)


def _joined(statements: Sequence[BoundStatement]) -> Any:
    """Join the statements in an unlogged batch, which is one mutation within one partition."""
    if len(statements) == 1:
        return statements[0]
    batch = BatchStatement(BatchType.UNLOGGED)
    batch.add_all(statements, [None] * len(statements))
    return batch
