"""Executing statements on a cluster: prepared, several of one partition as one write."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from cassandra.query import (
    UNSET_VALUE,
    BatchStatement,
    BatchType,
    BoundStatement,
    PreparedStatement,
)

from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.driver.driver_value import driver_value
from cdc_reader.driver.errors import request_error
from cdc_reader.driver.session import Connection
from cdc_reader.statement import UNSET, Statement

_PREPARED = 1_000
"""Statements kept prepared: there are a dozen or so for a table."""
_BATCH_BYTES = 50_000
_BATCH_STATEMENTS = 200
"""A batch is cut here. The server warns of batches of 128 KiB and refuses those of 1 MiB."""


class CqlWriter:
    """Writes to a cluster, with the retries and timeouts of its configuration.

    Several threads may use one. Statements must bear repetition: one whose answer is lost is
    sent again.
    """

    def __init__(self, config: ConnectionConfig, read: ReadConfig | None = None) -> None:
        self._connection = Connection(config, read or ReadConfig())
        self._prepared: OrderedDict[str, PreparedStatement] = OrderedDict()
        self._lock = threading.Lock()

    def write(self, statements: Sequence[Statement]) -> None:
        """Execute them, which are of one partition, as one write if it is not too large.

        Raises errors of `cdc_reader.errors` only.
        """
        for batch in _batches([self._bind(statement) for statement in statements]):
            self._connection.retry(partial(self._execute, batch))

    def close(self) -> None:
        """Give up the connection."""
        self._connection.close()

    def _execute(self, statement: Any) -> None:
        try:
            self._connection.session().execute(statement)
        except Exception as error:
            raise request_error(error, "writing") from error

    def _bind(self, statement: Statement) -> BoundStatement:
        values = [
            UNSET_VALUE if value is UNSET else driver_value(cql_type, value)
            for cql_type, value in zip(statement.types, statement.values, strict=True)
        ]
        prepared = self._prepare(statement.cql)
        try:
            return prepared.bind(values)
        except Exception as error:
            raise request_error(error, statement.cql) from error

    def _prepare(self, cql: str) -> PreparedStatement:
        with self._lock:
            if (known := self._prepared.get(cql)) is not None:
                self._prepared.move_to_end(cql)
                return known
        prepared = self._connection.prepare(cql, cql)
        with self._lock:
            self._prepared[cql] = prepared
            if len(self._prepared) > _PREPARED:
                self._prepared.popitem(last=False)
        return prepared


def _batches(bound: Sequence[BoundStatement]) -> Iterator[Any]:
    """The statements, as many as a batch may hold together; one alone is sent as it is."""
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
    """Statements of one partition in an unlogged batch are one mutation."""
    if len(statements) == 1:
        return statements[0]
    batch = BatchStatement(BatchType.UNLOGGED)
    batch.add_all(statements, [None] * len(statements))
    return batch
