"""The ScyllaDB table of checkpoints: its schema, and what is read from it and written to it.

A checkpoint is one partition: static columns say the position, rows the marks. A mark's row
lies under the position it was saved with, its `base`, and only those under the present
position count. So when the position moves on, one range deletion voids all that came before,
and marks that live on are written again under the new one.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from cdc_reader.checkpoint.packing import pack_mark, unpack_mark
from cdc_reader.cql_type import Native
from cdc_reader.driver.statements import Statements, Write
from cdc_reader.errors import CheckpointError, QueryRefusedError
from cdc_reader.ids import StreamId, TableName
from cdc_reader.progress import Checkpoint, CheckpointName, Mark
from cdc_reader.schema import Column

SCHEMA = """CREATE TABLE IF NOT EXISTS {table} (
    application text,
    keyspace_name text,
    table_name text,
    shard text,
    base bigint,
    stream blob,
    position bigint static,
    generation bigint static,
    swept bigint static,
    upto blob,
    rows blob,
    PRIMARY KEY ((application, keyspace_name, table_name, shard), base, stream)
)"""
"""The table's schema; `table` is its name as CQL text."""

_KEY = "application, keyspace_name, table_name, shard"
_WHERE = "application = ? AND keyspace_name = ? AND table_name = ? AND shard = ?"
_SELECTED = "position, generation, swept, base, stream, upto, rows, writetime(position)"
_SELECT = f"SELECT {_SELECTED} FROM {{table}} WHERE {_WHERE}"  # noqa: S608 - values are bound
_NAMES = f"SELECT DISTINCT {_KEY} FROM {{table}}"  # noqa: S608 - no values
_POSITION = (
    f"INSERT INTO {{table}} ({_KEY}, position, generation, swept) "  # noqa: S608 - as above
    "VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?"
)
_MARK = (
    f"INSERT INTO {{table}} ({_KEY}, base, stream, upto, rows) "  # noqa: S608 - as above
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?"
)
_VOID = (
    f"DELETE FROM {{table}} USING TIMESTAMP ? "  # noqa: S608 - as above
    f"WHERE {_WHERE} AND base {{side}} ?"
)
_BLOBS = ("stream", "upto", "rows")
_COLUMNS = tuple(
    Column(name, Native("blob" if name in _BLOBS else "bigint")) for name in _SELECTED.split(", ")
)
_TYPES = {
    **dict.fromkeys(_KEY.split(", "), "text"),
    **{column.name: str(column.type) for column in _COLUMNS[:-1]},
}
_IN_SCHEMA = tuple(Column(name, Native("text")) for name in ("column_name", "type"))


@frozen
class Stored:
    """What the table holds of a checkpoint: when it was written, in µs, and if marks are there."""

    checkpoint: Checkpoint | None = None
    written: int = 0
    has_rows: bool = False


class CheckpointTable:
    """Statements on the table `name`; rows it writes expire after `ttl` seconds, 0 for never."""

    def __init__(self, name: TableName, statements: Statements, ttl: int) -> None:
        self._name = name
        self._statements = statements
        self._ttl = ttl

    def make(self) -> None:
        """Make it if it is not there; CheckpointError if it cannot be, or is another table."""
        if not (found := self._columns()):
            try:
                self._statements.define(self._cql(SCHEMA))
            except QueryRefusedError as error:
                raise CheckpointError(f"{error}; give a keyspace that is there") from error
            found = self._columns()
        if wrong := sorted(_TYPES.items() - found.items()):
            missing = ", ".join(" ".join(column) for column in wrong)
            raise CheckpointError(
                f"table {self._name} is not one of checkpoints: expected columns {missing}; "
                "give another table"
            )

    def names(self) -> list[CheckpointName]:
        """Whose checkpoints there are, in order; none if the table is not there."""
        if not self._columns():
            return []
        key = tuple(Column(name, Native("text")) for name in _KEY.split(", "))
        rows = self._statements.rows(self._cql(_NAMES), (), key)
        return [
            CheckpointName(application, TableName(keyspace, table), shard)
            for application, keyspace, table, shard in sorted(tuple(row.values()) for row in rows)
        ]

    def load(self, name: CheckpointName) -> Stored:
        """What is there; of the marks those that count and are not void."""
        rows = self._statements.rows(self._cql(_SELECT), _key(name), _COLUMNS)
        if not rows or rows[0]["position"] is None:
            return Stored(has_rows=bool(rows))
        first = rows[0]
        position = first["position"]
        found = (_mark(row) for row in rows if row["base"] == position)
        marks = {stream: mark for stream, mark in found if mark.reaches(position)}
        checkpoint = Checkpoint(position, first["generation"], marks, first["swept"])
        has_rows = any(row["base"] is not None for row in rows)
        return Stored(checkpoint, first["writetime(position)"], has_rows)

    def position(self, name: CheckpointName, checkpoint: Checkpoint, at: int) -> Write:
        """Says the position, at the timestamp `at`, in µs."""
        said = (checkpoint.position, checkpoint.generation, checkpoint.swept)
        return Write(self._cql(_POSITION), (*_key(name), *said, self._ttl, at))

    def mark(self, name: CheckpointName, base: int, stream: StreamId, mark: Mark, at: int) -> Write:
        """Says a mark of the checkpoint whose position is `base`."""
        said = (base, bytes(stream), *pack_mark(mark))
        return Write(self._cql(_MARK), (*_key(name), *said, self._ttl, at))

    def void(self, name: CheckpointName, old: int, new: int, at: int) -> Write:
        """Deletes the marks under all positions on the side of `new` where `old` is."""
        side = "<" if old < new else ">"
        return Write(self._cql(_VOID, side=side), (at, *_key(name), new))

    def _columns(self) -> dict[str, str]:
        query = (
            "SELECT column_name, type FROM system_schema.columns "
            "WHERE keyspace_name = ? AND table_name = ?"
        )
        rows = self._statements.rows(query, (self._name.keyspace, self._name.name), _IN_SCHEMA)
        return {row["column_name"]: row["type"] for row in rows}

    def _cql(self, template: str, **parts: str) -> str:
        return template.format(table=self._name.cql, **parts)


def _key(name: CheckpointName) -> tuple[str, str, str, str]:
    return name.application, name.table.keyspace, name.table.name, name.shard


def _mark(row: dict[str, Any]) -> tuple[StreamId, Mark]:
    return StreamId(row["stream"]), unpack_mark(row["upto"] or b"", row["rows"] or b"")
