"""Statements applied together: one mutation for each partition they touch."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from attrs import frozen

from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.ast import BatchKind
from cdc_reader.testing.embedded.query import lwt
from cdc_reader.testing.embedded.query.execution import Evaluate, Execution
from cdc_reader.testing.embedded.query.lwt import Step
from cdc_reader.testing.embedded.query.modification import Modification
from cdc_reader.testing.embedded.query.result import ColumnSpec, Rows, Void
from cdc_reader.testing.embedded.query.source import MutationSink
from cdc_reader.testing.embedded.storage.database import PartitionKey
from cdc_reader.testing.embedded.storage.partition import Partition


@frozen
class WritePlan:
    """One modification, or the several of a textual batch."""

    modifications: tuple[Modification, ...]
    sink: MutationSink
    bind_columns: tuple[ColumnSpec, ...]
    timestamp: Evaluate | None = None
    warnings: tuple[str, ...] = ()

    @property
    def is_lwt(self) -> bool:
        return any(modification.conditions for modification in self.modifications)

    @property
    def partition_key_indexes(self) -> tuple[int, ...]:
        """Those of the last statement, as the server answers for a batch."""
        return self.modifications[-1].partition_key_indexes if self.modifications else ()

    @property
    def result_columns(self) -> tuple[ColumnSpec, ...]:
        if not self.is_lwt:
            return ()
        columns = lwt.result_columns(self.modifications)
        return lwt.specs(self.modifications[0].table, columns)

    def execute(self, execution: Execution) -> Void | Rows:
        """Write, if there are conditions only where they hold."""
        steps = [(modification, execution) for modification in self.modifications]
        given = self.timestamp(execution) if self.timestamp else None
        if isinstance(given, bytes):
            return apply(steps, self.sink, int.from_bytes(given, "big", signed=True))
        return apply(steps, self.sink)


def apply(steps: Sequence[Step], sink: MutationSink, timestamp: int | None = None) -> Void | Rows:
    """Write modifications, each with its execution, together.

    `timestamp` (µs) is the batch's own; else the client's, else the server's.
    """
    if not steps:
        return Void()
    execution = steps[0][1]
    if any(modification.conditions for modification, _ in steps):
        outcome = lwt.check(steps)
        if outcome.applies:
            sink.write(_mutations(steps, execution.server_timestamp()), execution.now_us)
        return outcome.rows
    if timestamp is None:
        timestamp = execution.options.timestamp
    if timestamp is None:
        timestamp = execution.server_timestamp()
    if mutations := _mutations(steps, timestamp):
        sink.write(mutations, execution.now_us)
    return Void()


def check_kind(kind: BatchKind, modifications: Sequence[Modification]) -> None:
    """Refuse counters where they may not stand."""
    counters = [modification.table.is_counter for modification in modifications]
    if kind is BatchKind.COUNTER and not all(counters):
        raise InvalidRequest("Cannot include non-counter statement in a counter batch")
    if any(counters) and not all(counters):
        raise InvalidRequest("Counter and non-counter mutations cannot exist in the same batch")
    if kind is BatchKind.LOGGED and any(counters):
        raise InvalidRequest("Cannot include a counter statement in a logged batch")


def _mutations(steps: Sequence[Step], default_timestamp: int) -> list[Partition]:
    """One mutation for each table and key, in the order first met; empty ones left out."""
    merged: dict[tuple[UUID, PartitionKey], Partition] = {}
    for modification, execution in steps:
        for mutation in modification.mutations(execution, default_timestamp):
            place = (mutation.table.id, mutation.key)
            if place in merged:
                merged[place].merge(mutation)
            else:
                merged[place] = mutation
    return [mutation for mutation in merged.values() if _says_something(mutation)]


def _says_something(mutation: Partition) -> bool:
    return (
        mutation.deletion is not None
        or not mutation.static.is_empty()
        or bool(mutation.rows)
        or len(mutation.ranges) > 0
    )
