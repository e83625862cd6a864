"""The checkpoint table in ScyllaDB: its schema, and the statements that read and write it.

A checkpoint is one partition: static columns contain the position, and rows contain the marks. The
`base` of a mark's row is the position with which the mark was saved. Only marks whose base is the
current position apply. When the position advances, one range delete removes all earlier marks, and
marks that still matter are written again with the new base.

Two static cells contain the lease. `lease` identifies the lease's holder, and expires according to
the servers' clocks. `owner` identifies the owner that last acquired the lease, and does not expire
with the lease. No other owner may save. Both cells are written only by lightweight transactions. A
save under a lease is also a lightweight transaction, with a condition on `owner`. The timestamp of
a transaction is later than the timestamps of all earlier transactions in its partition, regardless
of clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from attrs import frozen

from cdc_reader._time import Micros
from cdc_reader.checkpoints.encoding import pack_cursor, unpack_cursor
from cdc_reader.checkpoints.marks import pack_mark, unpack_mark
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cluster.write import Statements, Write
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import Native
from cdc_reader.errors import (
    CheckpointError,
    LeaseUnsupportedError,
    QueryRefusedError,
)
from cdc_reader.reading.cursor import Checkpoint, Mark
from cdc_reader.streams.stream import StreamId

SCHEMA = """CREATE TABLE IF NOT EXISTS {table} (
    application text,
    keyspace_name text,
    table_name text,
    shard text,
    base bigint,
    stream blob,
    position bigint static,
    cursor text static,
    owner text static,
    lease text static,
    acked_through blob,
    rows blob,
    PRIMARY KEY ((application, keyspace_name, table_name, shard), base, stream)
)"""
"""The table's schema; `table` is its name as CQL text."""

_KEY = "application, keyspace_name, table_name, shard"

WHERE = "application = ? AND keyspace_name = ? AND table_name = ? AND shard = ?"
"""The condition that selects a partition; `key_of` returns its values."""

_SELECT = f"SELECT {{columns}} FROM {{table}} WHERE {WHERE}"  # noqa: S608 - values are bound

_NAMES = f"SELECT DISTINCT {_KEY} FROM {{table}}"  # noqa: S608 - no values

_POSITION = (
    f"INSERT INTO {{table}} ({_KEY}, position, cursor) "  # noqa: S608 - as above
    "VALUES (?, ?, ?, ?, ?, ?) USING TTL ?"
)

_MARK = (
    f"INSERT INTO {{table}} ({_KEY}, base, stream, acked_through, rows) "  # noqa: S608 - as above
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?"
)

_VOID = (
    f"DELETE FROM {{table}}{{using}} "  # noqa: S608 - as above
    f"WHERE {WHERE} AND base {{side}} ?"
)

_SELECTED = {
    **dict.fromkeys(("position", "base"), "bigint"),
    **dict.fromkeys(("stream", "acked_through", "rows"), "blob"),
    **dict.fromkeys(("cursor", "owner", "lease"), "text"),
}

_WRITTEN = dict.fromkeys(("writetime(position)", "writetime(owner)"), "bigint")

_READ = tuple(Column(name, Native(kind)) for name, kind in {**_SELECTED, **_WRITTEN}.items())

_TYPES = {**dict.fromkeys(_KEY.split(", "), "text"), **_SELECTED}

_IN_SCHEMA = tuple(Column(name, Native("text")) for name in ("column_name", "type"))

_APPLIED = "[applied]"
_NO_TRANSACTIONS = "LWT is not yet supported with tablets"
_HOLD = f"UPDATE {{table}} USING TTL ? SET lease = ? WHERE {WHERE}"  # noqa: S608 - values are bound
_OWN = f"UPDATE {{table}} USING TTL ? SET owner = ? WHERE {WHERE}"  # noqa: S608 - as above
_LEAVE = f"DELETE lease FROM {{table}} WHERE {WHERE}"


@frozen
class Stored:
    """A checkpoint as stored in the table, and whether the table has rows of marks.

    `written` is the timestamp of the last save, and `owned` is the timestamp of the last write
    under a lease, both in µs. Each is 0 if nothing was written. `written` is None if the server
    chose the timestamp and it has not been read.
    """

    checkpoint: Checkpoint | None = None
    written: int | None = 0
    has_rows: bool = False
    owned: int = 0


class CheckpointTable:
    """Statements on the table `name`. Rows expire after `ttl` seconds, or never if `ttl` is 0."""

    def __init__(self, name: TableName, statements: Statements, ttl: int) -> None:
        self._name = name
        self._statements = statements
        self._ttl = ttl

    def make(self) -> None:
        """Create the table if it does not exist; raise CheckpointError if it cannot be used."""
        if not (found := self._columns()):
            try:
                self._statements.define(self._cql(SCHEMA))
            except QueryRefusedError as error:
                raise CheckpointError(f"{error}; give an existing keyspace") from error
            found = self._columns()
        self._check(found)

    def _check(self, found: Mapping[str, str]) -> None:
        """Raise CheckpointError unless these are the columns of a checkpoint table."""
        if wrong := sorted(_TYPES.items() ^ found.items()):
            differing = ", ".join(" ".join(column) for column in wrong)
            raise CheckpointError(
                f"table {self._name} is not a checkpoint table of this version: it differs in "
                f"{differing}; use the version of scylla-cdc that made it, or give another table"
            )

    def names(self) -> list[CheckpointName]:
        """Return the names of the checkpoints, in order; empty if the table does not exist."""
        if not (found := self._columns()):
            return []
        self._check(found)
        key = tuple(Column(name, Native("text")) for name in _KEY.split(", "))
        rows = self._statements.rows(self._cql(_NAMES), (), key)
        return [
            CheckpointName(application, TableName(keyspace, table), shard)
            for application, keyspace, table, shard in sorted(tuple(row.values()) for row in rows)
        ]

    def load(self, name: CheckpointName) -> Stored:
        """Return the stored checkpoint, with only the marks that apply."""
        rows = self._rows(name)
        if not rows or rows[0]["position"] is None:
            return Stored(has_rows=any(row["base"] is not None for row in rows))
        first = rows[0]
        position = first["position"]
        found = (_mark(row) for row in rows if row["base"] == position)
        marks = {stream: mark for stream, mark in found if mark.reaches(position)}
        checkpoint = unpack_cursor(first["cursor"], position, marks, name.table)
        has_rows = any(row["base"] is not None for row in rows)
        owned = first["writetime(owner)"] or 0
        return Stored(checkpoint, first["writetime(position)"], has_rows, owned)

    def position(self, name: CheckpointName, checkpoint: Checkpoint, at: int | None) -> Write:
        """Return the statement that sets the position, with the timestamp `at` (µs).

        If `at` is None, the server chooses the timestamp.
        """
        said = checkpoint.position, pack_cursor(checkpoint)
        return self._insert(_POSITION, (*key_of(name), *said, self._ttl), at)

    def mark(
        self, name: CheckpointName, base: Micros, stream: StreamId, mark: Mark, at: int | None
    ) -> Write:
        """Return the statement that writes a stream's mark in the checkpoint at position `base`."""
        said = (base, bytes(stream), *pack_mark(mark))
        return self._insert(_MARK, (*key_of(name), *said, self._ttl), at)

    def void(self, name: CheckpointName, old: Micros, new: Micros, at: int | None) -> Write:
        """Return the statement that deletes the marks whose base is below `new`.

        If `old` is greater than `new`, the statement deletes the marks whose base is above `new`.
        """
        side, where = "<" if old < new else ">", (*key_of(name), new)
        if at is None:
            return Write(self._cql(_VOID, using="", side=side), where)
        return Write(self._cql(_VOID, using=" USING TIMESTAMP ?", side=side), (at, *where))

    def _insert(self, template: str, values: tuple[object, ...], at: int | None) -> Write:
        if at is None:
            return Write(self._cql(template), values)
        return Write(f"{self._cql(template)} AND TIMESTAMP ?", (*values, at))

    def _rows(self, name: CheckpointName) -> list[dict[str, Any]]:
        """Return the rows of a checkpoint's partition."""
        cql = self._cql(_SELECT, columns=", ".join(column.name for column in _READ))
        return self._statements.rows(cql, key_of(name), _READ)

    def _columns(self) -> dict[str, str]:
        query = (
            "SELECT column_name, type FROM system_schema.columns "
            "WHERE keyspace_name = ? AND table_name = ?"
        )
        rows = self._statements.rows(query, (self._name.keyspace, self._name.name), _IN_SCHEMA)
        return {row["column_name"]: row["type"] for row in rows}

    def _cql(self, template: str, **parts: str) -> str:
        return template.format(table=self._name.cql, **parts)


def key_of(name: CheckpointName) -> tuple[str, str, str, str]:
    """Return the values of a checkpoint's partition key."""
    return name.application, name.table.keyspace, name.table.name, name.shard


def _mark(row: dict[str, Any]) -> tuple[StreamId, Mark]:
    return StreamId(row["stream"]), unpack_mark(row["acked_through"] or b"", row["rows"] or b"")


class LeaseCells:
    """The leases in the table `name`.

    `ttl` is the TTL of the table's checkpoints in seconds, or 0 if they do not expire. Owners are
    strings, and a `lifetime` is in seconds. A request whose response was lost can safely be
    repeated.
    """

    def __init__(self, name: TableName, statements: Statements, ttl: int) -> None:
        self._table = name.cql
        self._statements = statements
        self._ttl = ttl

    def acquire(self, name: CheckpointName, owner: str, lifetime: int) -> str | None:
        """Acquire the lease if nobody holds it, and return None; otherwise return the holder.

        Raises LeaseUnsupportedError if the servers have no lightweight transactions.
        """
        hold = self._hold(name, owner, lifetime, " IF lease = null")
        try:
            said = self._statements.write_if([hold, self._own(name, owner, lifetime)])
        except QueryRefusedError as error:
            if _NO_TRANSACTIONS not in str(error):
                raise
            raise LeaseUnsupportedError(
                f"table {self._table} uses tablets, for which ScyllaDB before 2025.4 has no "
                "lightweight transactions: upgrade, or give a keyspace without tablets"
            ) from error
        return None if said[_APPLIED] else cast("str | None", said["lease"])

    def renew(self, name: CheckpointName, owner: str, lifetime: int) -> bool:
        """Make the lease end `lifetime` from now, unless another owner has acquired it."""
        guard = self._own(name, owner, lifetime, " IF owner = ?")
        return self._applies([guard, self._hold(name, owner, lifetime)])

    def release(self, name: CheckpointName, owner: str) -> None:
        """Release the lease, unless another owner has acquired it."""
        self.write_as(owner, name, [Write(_LEAVE.format(table=self._table), key_of(name))])

    def write_as(self, owner: str, name: CheckpointName, writes: Sequence[Write]) -> bool:
        """Apply the writes, unless another owner has acquired the lease since `owner` did."""
        return self._applies([self._own(name, owner, 0, " IF owner = ?"), *writes])

    def _applies(self, writes: Sequence[Write]) -> bool:
        return bool(self._statements.write_if(writes)[_APPLIED])

    def _hold(self, name: CheckpointName, owner: str, lifetime: int, condition: str = "") -> Write:
        cql = _HOLD.format(table=self._table) + condition
        return Write(cql, (lifetime, owner, *key_of(name)))

    def _own(self, name: CheckpointName, owner: str, lifetime: int, condition: str = "") -> Write:
        """Return the write that sets the cell `owner`.

        The cell lasts as long as the checkpoint, and at least as long as the lease.
        """
        lasts = max(self._ttl, lifetime) if self._ttl else 0
        values = (lasts, owner, *key_of(name), *([owner] if condition else []))
        return Write(_OWN.format(table=self._table) + condition, values)
