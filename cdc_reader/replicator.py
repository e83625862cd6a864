"""`Replicator`: applies changes to another table, so that it becomes what the first one is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Protocol

from cdc_reader.change import Change, ChangeOperation
from cdc_reader.clock import SystemClock
from cdc_reader.errors import UnsupportedTableError
from cdc_reader.ids import TableName
from cdc_reader.operation import Operation
from cdc_reader.ports import Clock
from cdc_reader.schema import ColumnKind, TableSchema
from cdc_reader.statement import Statement
from cdc_reader.table_writes import TableWrites

_SECOND = 1_000_000
_WRITES = frozenset([Operation.INSERT, Operation.UPDATE])
_OF_A_ROW = frozenset(
    [ChangeOperation.INSERT, ChangeOperation.ROW_DELETE, ChangeOperation.SERVER_ROW_DELETE]
)
_DELETES = frozenset(
    [
        ChangeOperation.ROW_DELETE,
        ChangeOperation.PARTITION_DELETE,
        ChangeOperation.SERVER_ROW_DELETE,
        ChangeOperation.SERVER_PARTITION_DELETE,
    ]
)


class Writer(Protocol):
    """Executes statements; `cdc_reader.driver.CqlWriter` does on a cluster."""

    def write(self, statements: Sequence[Statement]) -> None:
        """Execute them all, which are of one partition; on return they are there.

        Raises errors of `cdc_reader.errors`. Executing them again changes nothing.
        """
        ...


class Expiry(Enum):
    """From when on a TTL counts in the copy."""

    WRITTEN = "written"
    """From the write's timestamp: a cell expires when the one it is a copy of does, one whose
    time is up already within a second. For timestamps that are points in time."""
    APPLIED = "applied"
    """From when the change is applied. For timestamps that are anything else."""


class Replicator:
    """Applies changes of any number of tables to tables with the same columns.

    Every cell gets the timestamp it was written with, so the order of changes does not matter,
    and applying one again changes nothing. `targets` names the table for each source table, the
    one of the same name by default. A target should have CDC turned off: otherwise it refuses
    timestamps from before its current generation of streams.

    `apply` is a handler of a consumer; several threads may call it.
    """

    def __init__(
        self,
        writer: Writer,
        targets: Mapping[TableName, TableName] | None = None,
        *,
        expiry: Expiry = Expiry.WRITTEN,
        clock: Clock | None = None,
    ) -> None:
        self._writer = writer
        self._targets = dict(targets or {})
        self._writes: dict[TableName, TableWrites] = {}
        self._expiry = expiry
        self._clock = clock or SystemClock()

    def apply(self, change: Change) -> None:
        """Write what the change says, as one write; see `statements` for the errors."""
        if found := self.statements(change):
            self._writer.write(found)

    def statements(self, change: Change) -> list[Statement]:
        """What to execute, in any order; nothing for images alone.

        Raises UnsupportedTableError if the log does not say what was written, or says it in a
        way that this version does not know.
        """
        try:
            return list(self._statements(change))
        except ValueError as error:
            raise UnsupportedTableError(
                f"{change.table}: a change cannot be applied: {error}"
            ) from error

    def _statements(self, change: Change) -> Iterator[Statement]:
        _check(change)
        _check_key(change)
        writes = self._writes_to(change.schema.base)
        for part in change.parts:
            if part.operation in _WRITES:
                yield from writes.of_part(change, part, self._ttl(change, part.ttl))
        if change.operation in _DELETES:
            yield writes.row_delete(change)
        elif change.operation is ChangeOperation.RANGE_DELETE:
            yield from writes.range_delete(change)

    def _writes_to(self, schema: TableSchema) -> TableWrites:
        """Made once for each schema that a table has; its next one takes the place of the last."""
        known = self._writes.get(schema.name)
        if known is None or known.schema is not schema:
            known = TableWrites(schema, self._targets.get(schema.name, schema.name))
            self._writes[schema.name] = known
        return known

    def _ttl(self, change: Change, ttl: int | None) -> int | None:
        """The seconds that are left; one at least, for a TTL of 0 would be none."""
        if ttl is None or self._expiry is Expiry.APPLIED:
            return ttl
        left = change.timestamp + ttl * _SECOND - self._clock.now()
        return min(max(-(-left // _SECOND), 1), ttl)


def _check(change: Change) -> None:
    if not change.deltas_shown:
        raise UnsupportedTableError(
            f"{change.table}: its log tells keys only, not what was written to them; "
            "set the option delta of its cdc to full"
        )
    if not change.operation.is_known:
        raise UnsupportedTableError(
            f"{change.table}: operation {change.operation} is not known to this version, so it "
            "cannot be applied; use a newer one"
        )


def _check_key(change: Change) -> None:
    """A clustering column renamed since is null in older rows: a row delete would look like one
    of the partition.
    """
    clustering = [c.name for c in change.schema.base.columns if c.kind is ColumnKind.CLUSTERING]
    known = [name for name in clustering if name in change.key]
    is_of_a_row = change.operation in _OF_A_ROW or (change.is_static and not change.deltas)
    if len(known) < len(clustering) and (known or is_of_a_row):
        raise ValueError(f"the log does not show its clustering key, only {dict(change.key)}")
