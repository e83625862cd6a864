"""Applies statements together, with one mutation for each partition that they write."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from attrs import frozen

from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.ast import BatchKind
from cdc_reader.testing.embedded.query import lwt
from cdc_reader.testing.embedded.query.lwt import Step
from cdc_reader.testing.embedded.query.model import SERIAL, Evaluate, Execution
from cdc_reader.testing.embedded.query.modification import Modification, check_timestamp
from cdc_reader.testing.embedded.query.ports import MutationSink
from cdc_reader.testing.embedded.query.result import ColumnSpec, Rows, Void
from cdc_reader.testing.embedded.storage.cell import MultiCell
from cdc_reader.testing.embedded.storage.database import PartitionKey
from cdc_reader.testing.embedded.storage.partition import Partition

_MAX_BATCH = 1 << 20


@frozen
class WritePlan:
    """A plan for one modification, or for the modifications of a BATCH statement."""

    modifications: tuple[Modification, ...]
    sink: MutationSink
    bind_columns: tuple[ColumnSpec, ...]
    timestamp: Evaluate | None = None
    is_batch: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def is_lwt(self) -> bool:
        return any(modification.conditions for modification in self.modifications)

    @property
    def partition_key_indexes(self) -> tuple[int, ...]:
        """The last statement's partition key indexes; for a batch, ScyllaDB returns only these."""
        return self.modifications[-1].partition_key_indexes if self.modifications else ()

    @property
    def result_columns(self) -> tuple[ColumnSpec, ...]:
        if not self.is_lwt:
            return ()
        columns = lwt.result_columns(self.modifications, self.is_batch)
        return lwt.specs(self.modifications[0].table, columns)

    def execute(self, execution: Execution) -> Void | Rows:
        """Apply the modifications if all conditions hold."""
        steps = [(modification, execution) for modification in self.modifications]
        given = self.timestamp(execution) if self.timestamp else None
        if isinstance(given, bytes):
            timestamp = int.from_bytes(given, "big", signed=True)
            check_timestamp(timestamp, execution.now_us)
            return apply(steps, self.sink, self.is_batch, timestamp)
        return apply(steps, self.sink, self.is_batch)


def apply(
    steps: Sequence[Step], sink: MutationSink, is_batch: bool, timestamp: int | None = None
) -> Void | Rows:
    """Apply modifications together, each with its execution.

    `timestamp` (µs) is the timestamp that BATCH USING specifies, if any.
    """
    if not steps:
        return Void()
    execution = steps[0][1]
    is_lwt = any(modification.conditions for modification, _ in steps)
    if execution.options.consistency in SERIAL:
        raise InvalidRequest(
            f"{SERIAL[execution.options.consistency]} is not supported as conditional update "
            "commit consistency. Use ANY if you mean \"make sure it is accepted but I don't care "
            'how many replicas commit it for non-SERIAL reads"'
            if is_lwt
            else "You must use conditional updates for serializable writes"
        )
    if is_lwt:
        outcome = lwt.check(steps, is_batch)
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
    """Reject counters in a logged batch, non-counters in a counter batch, and mixed batches."""
    counters = [modification.table.is_counter for modification in modifications]
    if kind is BatchKind.COUNTER and not all(counters):
        raise InvalidRequest("Cannot include non-counter statement in a counter batch")
    if kind is BatchKind.LOGGED and any(counters):
        raise InvalidRequest("Cannot include a counter statement in a logged batch")
    if any(counters) and not all(counters):
        raise InvalidRequest("Counter and non-counter mutations cannot exist in the same batch")


def _mutations(steps: Sequence[Step], default_timestamp: int) -> list[Partition]:
    """Return one mutation per table and key, in order of first use; omit empty mutations."""
    merged: dict[tuple[UUID, PartitionKey], Partition] = {}
    for modification, execution in steps:
        # Each increment of a counter must see the increments before it.
        before = merged if modification.table.is_counter else {}
        for mutation in modification.mutations(execution, default_timestamp, before):
            place = (mutation.table.id, mutation.key)
            if place in merged and merged[place] is not mutation:
                merged[place].merge(mutation)
            else:
                merged[place] = mutation
    found = [mutation for mutation in merged.values() if _says_something(mutation)]
    if len(found) > 1 and sum(map(_size, found)) > _MAX_BATCH:
        raise InvalidRequest("Batch too large")
    return found


def _size(mutation: Partition) -> int:
    """Return the number of bytes in a mutation's clustering keys and cells."""
    size = 0
    for row in (mutation.static, *mutation.rows.values()):
        size += sum(map(len, row.key))
        for value in row.cells.values():
            cells = value.cells if isinstance(value, MultiCell) else {b"": value}
            size += sum(len(key) + len(cell.value or b"") for key, cell in cells.items())
    return size


def _says_something(mutation: Partition) -> bool:
    return (
        mutation.deletion is not None
        or not mutation.static.is_empty()
        or bool(mutation.rows)
        or len(mutation.ranges) > 0
    )
