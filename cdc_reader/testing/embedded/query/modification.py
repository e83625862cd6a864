"""Plans of INSERT, UPDATE and DELETE, which create mutations when executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from attrs import Factory, field, frozen

from cdc_reader.testing.embedded.errors import InvalidRequest, ServerError
from cdc_reader.testing.embedded.query.assignment import Operation, deleted_counter
from cdc_reader.testing.embedded.query.clustering import ClusteringKey, ClusteringRestriction
from cdc_reader.testing.embedded.query.filters import Conditions
from cdc_reader.testing.embedded.query.keys import ExactKeys
from cdc_reader.testing.embedded.query.model import MAX_KEY, Evaluate, Execution, Unset
from cdc_reader.testing.embedded.query.ports import TableSource
from cdc_reader.testing.embedded.query.write import MAX_TTL, Write
from cdc_reader.testing.embedded.schema.table import Column, Kind, Table
from cdc_reader.testing.embedded.storage.database import PartitionKey
from cdc_reader.testing.embedded.storage.partition import Partition
from cdc_reader.testing.embedded.storage.ranges import RangeTombstone
from cdc_reader.testing.embedded.storage.row import LiveRow, Row

_MAX_AHEAD_US = 3 * 86_400_000_000
_MAX_TIMESTAMP = (1 << 63) - 1


def _operations(on_statics: bool) -> Any:
    def of(planned: Modification) -> tuple[Operation, ...]:
        found = planned.operations
        return tuple(each for c, each in found if (c.kind is Kind.STATIC) is on_statics)

    return field(init=False, default=Factory(of, takes_self=True), repr=False)


@frozen
class Modification:
    """A planned INSERT, UPDATE or DELETE.

    `operations` write the cells of their columns. If `inserts` is True, the statement also
    writes row markers. If `deletes` is True, it deletes the rows, ranges or partitions that `rows`
    selects.
    """

    table: Table
    source: TableSource
    keys: ExactKeys
    rows: ClusteringRestriction
    operations: tuple[tuple[Column, Operation], ...] = ()
    inserts: bool = False
    deletes: bool = False
    ttl: Evaluate | None = None
    timestamp: Evaluate | None = None
    conditions: Conditions | None = None
    timeout: Callable[[Execution], None] | None = None
    partition_key_indexes: tuple[int, ...] = ()
    expiry_first: bool = True
    _static_operations: tuple[Operation, ...] = _operations(on_statics=True)
    _row_operations: tuple[Operation, ...] = _operations(on_statics=False)

    @property
    def tests_existence(self) -> bool:
        """True if the statement has IF EXISTS or IF NOT EXISTS."""
        return self.conditions is not None and self.conditions.exists is not None

    @property
    def tests_rows(self) -> bool:
        """True if a condition tests a clustering row, not only the static row."""
        if self.conditions is None:
            return False
        return self.rows.names_rows if self.tests_existence else self.conditions.names_regular

    def mutations(
        self,
        execution: Execution,
        default_timestamp: int,
        before: Mapping[tuple[UUID, PartitionKey], Partition],
    ) -> list[Partition]:
        """Return one mutation per partition key; extend the key's mutation in `before`, if any."""
        if self.timeout is not None:
            self.timeout(execution)
        timestamp = self._timestamp(execution, default_timestamp)
        write = Write(timestamp, self._ttl(execution), execution, self.expiry_first)
        return [
            self._mutation(before.get((self.table.id, key)) or Partition(self.table, key), write)
            for key in self.partition_keys(execution)
        ]

    def partition_keys(self, execution: Execution) -> list[PartitionKey]:
        """Return the partition keys; raise InvalidRequest if one is empty or too long."""
        keys = self.keys.keys(execution)
        for key in keys:
            if len(key) == 1 and not key[0]:
                raise InvalidRequest("Key may not be empty")
            size = len(key[0]) if len(key) == 1 else sum(len(part) + 3 for part in key)
            if size > MAX_KEY:
                raise InvalidRequest(f"Key length of {size} is longer than maximum of {MAX_KEY}")
        return keys

    def clustering_keys(self, execution: Execution) -> list[ClusteringKey]:
        """Return the full clustering keys that the statement specifies."""
        keys = self.rows.prefixes(execution) if self.rows.names_rows else []
        for size in (len(part) for key in keys for part in key):
            if size > MAX_KEY:
                raise ServerError(f"Key size too large: {size} > {MAX_KEY}")
        return keys

    def _timestamp(self, execution: Execution, default: int) -> int:
        value = self.timestamp(execution) if self.timestamp else None
        if isinstance(value, bytes):
            timestamp = int.from_bytes(value, "big", signed=True)
            check_timestamp(timestamp, execution.now_us)
            return timestamp
        if self.timestamp and value is None:
            raise InvalidRequest("Invalid null value of timestamp")
        return default

    def _ttl(self, execution: Execution) -> int:
        value = self.ttl(execution) if self.ttl else None
        if self.ttl and value is None:
            raise InvalidRequest("Invalid null value of TTL")
        if value is None or isinstance(value, Unset):
            return self.table.default_ttl
        ttl = int.from_bytes(value, "big", signed=True)
        if ttl < 0:
            raise InvalidRequest("A TTL must be greater or equal to 0")
        if ttl > MAX_TTL:
            raise InvalidRequest(f"ttl is too large. requested ({ttl}) maximum ({MAX_TTL})")
        return ttl

    def _mutation(self, mutation: Partition, write: Write) -> Partition:
        if self.deletes:
            self._delete(mutation, write)
        for operation in self._static_operations:
            operation(mutation.static, write, lambda: self._read(mutation.key, None, write))
        if self._row_operations or self.inserts:
            for clustering_key in self.clustering_keys(write.execution):
                self._write_row(mutation, clustering_key, write)
        return mutation

    def _write_row(self, mutation: Partition, key: ClusteringKey, write: Write) -> None:
        row = mutation.rows.get(mutation.position(key)) or Row(key)
        if self.inserts:
            row.set_marker(write.cell(b""))
        for operation in self._row_operations:
            operation(row, write, lambda: self._read(mutation.key, key, write))
        if not row.is_empty():
            mutation.rows[mutation.position(key)] = row

    def _delete(self, mutation: Partition, write: Write) -> None:
        if self.rows.is_open:
            mutation.delete(write.timestamp)
        elif self.rows.names_rows:
            for key in self.clustering_keys(write.execution):
                mutation.row(key).delete(write.timestamp)
        else:
            for each in self.rows.ranges(write.execution):
                mutation.delete_range(RangeTombstone(each.start, each.end, write.timestamp))

    def _read(self, key: PartitionKey, row: ClusteringKey | None, write: Write) -> LiveRow:
        """Return the stored clustering row; if `row` is None, return the static row."""
        stored = self.source.partition(self.table, key)
        if stored is None:
            return LiveRow(row or (), None, {})
        if self.table.is_counter and stored.has_deleted(row):
            raise deleted_counter()
        now = write.execution.now
        return stored.live_static(now) if row is None else stored.live_row(row, now)


def check_timestamp(timestamp: int, now_us: int) -> None:
    """Reject a USING TIMESTAMP that is more than three days in the future, or the smallest one."""
    if timestamp < -_MAX_TIMESTAMP:  # which ScyllaDB uses for an absent timestamp
        raise InvalidRequest(
            f"Out of bound timestamp, must be in [{-_MAX_TIMESTAMP}, {_MAX_TIMESTAMP}]"
        )
    if timestamp - now_us > _MAX_AHEAD_US:
        raise InvalidRequest(
            "Cannot provide a timestamp more than 3 days into the future. If this was not "
            "intended, make sure the timestamp is in microseconds. You can also disable this check "
            "by setting the restrict_future_timestamp configuration option to false."
        )
