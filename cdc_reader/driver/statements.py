"""Writing to the cluster: statements bound by value, several as one mutation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import field, frozen
from cassandra import ConsistencyLevel, Unauthorized
from cassandra.query import BatchStatement, BatchType, PreparedStatement, Statement

from cdc_reader.driver.errors import request_error
from cdc_reader.driver.queries import Query
from cdc_reader.driver.session import Connection
from cdc_reader.errors import CdcError, PermissionDeniedError
from cdc_reader.schema import Column


@frozen
class Write:
    """An INSERT, UPDATE or DELETE with a ``?`` for each of its values.

    It must be safe to repeat: say the timestamp in it.
    """

    cql: str
    values: tuple[object, ...] = field(repr=lambda values: f"<{len(values)} values>")


class Statements:
    """What is executed over a connection, at one consistency; thread-safe.

    Failures that may pass are retried; raises errors of `cdc_reader.errors` only, and says in
    them what was being done.
    """

    def __init__(self, connection: Connection, consistency: str, doing: str) -> None:
        self._connection = connection
        self._consistency = consistency
        self._level = ConsistencyLevel.name_to_value[consistency]
        self._doing = doing
        self._prepared: dict[str, PreparedStatement] = {}

    def define(self, cql: str) -> None:
        """Execute a statement of schema, without values."""
        self._execute(lambda: cql)

    def write(self, writes: Sequence[Write]) -> None:
        """Apply the writes; of one partition, all of them or none."""
        if len(writes) == 1:
            self._execute(lambda: self._bound(writes[0]))
        elif writes:
            self._execute(lambda: self._batch(writes))

    def rows(
        self, cql: str, values: tuple[object, ...], columns: tuple[Column, ...]
    ) -> list[dict[str, Any]]:
        """All rows of a query whose result has these columns, each a dict by column."""
        query = Query(cql, values, columns, self._consistency, self._doing)
        return [row for batch in self._connection.batches(query) for row in batch.to_pylist()]

    def close(self) -> None:
        """Give up the connection; a later use opens another."""
        self._prepared.clear()
        self._connection.close()

    def _execute(self, statement: Callable[[], Statement | str]) -> None:
        def attempt() -> None:
            try:
                self._connection.session().execute(statement())
            except Exception as error:
                raise self._error(error) from error

        self._connection.retry(attempt)

    def _bound(self, write: Write) -> Statement:
        bound = self._statement(write.cql).bind(write.values)
        bound.consistency_level = self._level
        return bound

    def _batch(self, writes: Sequence[Write]) -> Statement:
        """Unlogged: within one partition that is whole all the same, and costs one write."""
        batch = BatchStatement(BatchType.UNLOGGED, consistency_level=self._level)
        for write in writes:
            batch.add(self._statement(write.cql), write.values)
        return batch

    def _statement(self, cql: str) -> PreparedStatement:
        if cql not in self._prepared:
            self._prepared[cql] = self._connection.prepare(cql, self._doing)
        return self._prepared[cql]

    def _error(self, error: Exception) -> CdcError:
        if isinstance(error, Unauthorized):
            text = " ".join(str(error.args[0] if error.args else error).split())
            return PermissionDeniedError(
                f"{self._doing}: {text}; grant the role CREATE, SELECT and MODIFY there"
            )
        return request_error(error, self._doing)
