"""`Replicator` applies the changes of one table to another table, to maintain a copy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import chain, islice
from typing import Protocol

from cdc_reader._time import Clock, SystemClock
from cdc_reader.changes.change import Change
from cdc_reader.changes.operation import ChangeOperation
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import Operation, TableSchema
from cdc_reader.cql.statement import Statement
from cdc_reader.errors import UnsupportedTableError
from cdc_reader.reading.retry import Interruptible
from cdc_reader.replication.writes import TableWrites

_SECOND = 1_000_000
TOGETHER = 512
"""The maximum number of changes whose writes are executed concurrently."""
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
    """Executes statements; `CqlWriter` executes them on a cluster."""

    def write(self, statements: Sequence[Statement]) -> None:
        """Execute all statements, which belong to one partition, and return when they are applied.

        Raises errors of `cdc_reader.errors`. Executing the statements again changes nothing.
        """
        ...


WriteAll = Callable[[Iterable[Sequence[Sequence[Statement]]]], None]
"""Executes rounds of statements. A round contains a sequence of statements for each partition; see
`CqlWriter.write_all`."""


class Expiry(Enum):
    """The start of a TTL in the copy: when the change was written, or when it is applied."""

    WRITTEN = "written"
    """The TTL starts at the write timestamp: a cell expires when the original cell does, or within
    a second if that time has passed. Suitable for write timestamps that are points in time.
    """
    APPLIED = "applied"
    """The TTL starts when the change is applied. Suitable for write timestamps that are not points
    in time."""


class Replicator(Interruptible):
    """Applies changes from any number of tables to tables with the same columns.

    Every cell gets its original timestamp, so the order of changes does not matter, and applying a
    change again has no effect. If rows of a snapshot come first, the copy starts with the table's
    existing rows: see the how-to "Replicate a table". `targets` maps source tables to target
    tables; the default is the table of the same name. Turn CDC off for a target, because a table
    with CDC rejects timestamps from before its current generation of streams.

    Pass `apply` to a consumer as its handler; several threads may call it.
    """

    __slots__ = ("_writer",)
    _waiting = "_writer"

    def __init__(
        self,
        writer: Writer,
        targets: Mapping[TableName, TableName] | Mapping[str, str] | None = None,
        *,
        expiry: Expiry = Expiry.WRITTEN,
        clock: Clock | None = None,
    ) -> None:
        named = (targets or {}).items()
        self._writer = writer
        self._targets = {TableName.of(name): TableName.of(target) for name, target in named}
        self._writes: dict[TableName, TableWrites] = {}
        self._expiry = Expiry(expiry)
        self._clock = clock or SystemClock()

    def apply(self, change: Change) -> None:
        """Apply a change as one write; see `statements` for the errors."""
        if found := self.statements(change):
            self._writer.write(found)

    def apply_all(self, changes: Iterable[Change]) -> None:
        """Apply changes, many at a time, and return when all of them are applied.

        Changes of one partition are applied in order, and several of them are often combined
        into one write. Do not pass an iterator that waits for new changes, because 512 changes
        are collected before they are written. If the method raises an error, some of the
        changes may have been applied.
        """
        some = iter(changes)
        together = iter(lambda: list(islice(some, TOGETHER)), [])
        writer = self._writer
        write_all: WriteAll = getattr(writer, "write_all", partial(_one_by_one, writer))
        write_all(map(self._by_partition, together))

    def _by_partition(self, changes: Iterable[Change]) -> list[list[Statement]]:
        """Return the statements that apply the changes, in one list for each partition."""
        found: defaultdict[Hashable, list[Statement]] = defaultdict(list)
        for change in changes:
            partition = change.table, *change.partition_key.values()
            found[partition] += self.statements(change)
        return [*filter(None, found.values())]

    def statements(self, change: Change) -> list[Statement]:
        """Return the statements that apply a change; they may be executed in any order.

        The list is empty if the change has only images. Raises UnsupportedTableError if the log
        does not show what was written, or shows it in a form that this version does not support.
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
        if change.operation is ChangeOperation.SNAPSHOT:
            for part in change.parts:
                yield from writes.of_snapshot(change, part)
            return
        for part in change.parts:
            if part.operation in _WRITES:
                yield from writes.of_part(change, part, self._ttl(change, part.ttl))
        if change.operation in _DELETES:
            yield writes.row_delete(change)
        elif change.operation is ChangeOperation.RANGE_DELETE:
            yield from writes.range_delete(change)

    def _writes_to(self, schema: TableSchema) -> TableWrites:
        """Return the `TableWrites` for a schema, which is created again when the schema changes."""
        known = self._writes.get(schema.name)
        if known is None or known.schema is not schema:
            known = TableWrites(schema, self._targets.get(schema.name, schema.name))
            self._writes[schema.name] = known
        return known

    def _ttl(self, change: Change, ttl: int | None) -> int | None:
        """Return the remaining seconds, but at least one, because a TTL of 0 means no TTL."""
        if ttl is None or self._expiry is Expiry.APPLIED:
            return ttl
        left = change.timestamp + ttl * _SECOND - self._clock.now()
        return min(max(-(-left // _SECOND), 1), ttl)


def _one_by_one(writer: Writer, rounds: Iterable[Sequence[Sequence[Statement]]]) -> None:
    for statements in chain.from_iterable(rounds):
        writer.write(statements)


def _check(change: Change) -> None:
    if not change.deltas_shown:
        raise UnsupportedTableError(
            f"{change.table}: its log has keys only, not the values written; set delta to 'full' "
            "in its cdc options"
        )
    if not change.operation.is_known:
        raise UnsupportedTableError(
            f"{change.table}: operation {change.operation} is not known to this version, so it "
            "cannot be applied; install a newer scylla-cdc"
        )


def _check_key(change: Change) -> None:
    """Reject rows that would be misread after a rename.

    If a clustering column is renamed, it is null in older rows of the log, so a row delete would
    look like a partition delete.
    """
    clustering = [column.name for column in change.schema.base.clustering]
    known = [name for name in clustering if name in change.key]
    is_of_a_row = change.operation in _OF_A_ROW or (change.is_static and not change.deltas)
    if len(known) < len(clustering) and (known or is_of_a_row):
        raise ValueError(f"the log does not show its clustering key, only {dict(change.key)}")
