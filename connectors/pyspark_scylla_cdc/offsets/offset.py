"""Offsets of a stream: a reader's cursor in the log of one table, as Spark stores it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any
from uuid import UUID

from attrs import evolve, frozen

from cdc_reader.checkpoints.encoding import (
    UNREADABLE,
    cursor_from_json,
    cursor_to_json,
    known_from_json,
    known_to_json,
    names_from_json,
    names_to_json,
)
from cdc_reader.checkpoints.spark import VERSION
from cdc_reader.config import DataLossMode
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import TableSchema, TableState
from cdc_reader.errors import CheckpointError, ConfigurationError
from cdc_reader.reading.cursor import (
    Checkpoint,
    KnownGenerations,
    RowName,
    SnapshotProgress,
    is_moment,
)
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.streams.ring import TokenRange, TokenRanges
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN
from cdc_reader.streams.window import Window

_REMEDIES = {
    "checkpointLocation": "start with a new checkpointLocation",
    "startingOffsets": "give an offset of this table, or leave startingOffsets out",
}


class SnapshotState(StrEnum):
    """Whether a query began with a snapshot of the base table, and whether the table was read."""

    NONE = "none"
    PENDING = "pending"
    DONE = "done"


@frozen
class Offset:
    """An offset: the `cursor` of a query, without marks, and what Spark needs besides.

    It belongs to the `table` (``keyspace.name``). The micro-batch that ends at the offset delivers
    the late `rows` as well. Spark compares offsets as JSON text, so the order of keys is part of
    the format. While the position stays the same, an offset changes only if late rows, or the rows
    of a generation that was announced late, are delivered.
    """

    cursor: Checkpoint
    table: str
    has_snapshot: bool = False
    """True if the query began with a snapshot of the base table."""
    rows: frozenset[RowName] = frozenset()
    began: int | None = None
    """The start of the query's first micro-batch, in µs. Only the offset at the end of that
    micro-batch contains it; in other offsets it is None."""
    began_with: KnownGenerations | None = None
    """The generations known at `began`, if the query began at an offset of another query."""
    lost: Window | None = None
    """The window of the lost changes that made a new snapshot necessary; set at the end of the
    snapshot's first micro-batch, and until the snapshot is complete.
    """
    late_rows: int = 0
    """Late rows found since the previous offset, but not delivered. They are counted at the next
    offset that changes for another reason, because Spark runs a micro-batch for each new offset.
    """

    @property
    def position(self) -> int:
        """The write time, in µs, before which every log row has been delivered."""
        return self.cursor.position

    @property
    def snapshot(self) -> SnapshotState:
        """Whether the query began with a snapshot, and whether the table was read."""
        if self.cursor.snapshot is not None:
            return SnapshotState.PENDING
        return SnapshotState.DONE if self.has_snapshot else SnapshotState.NONE

    @property
    def is_before_snapshot(self) -> bool:
        """True if rows of the base table are still to be read, as of `position`."""
        return self.cursor.snapshot is not None

    @property
    def done(self) -> int:
        """The token up to which the base table need not be read again."""
        if self.cursor.snapshot is None:
            return MAX_TOKEN
        return max((each.end for each in self.cursor.snapshot.done), default=MIN_TOKEN)

    def begins_anew(self, since: Offset | None) -> bool:
        """Return True if the micro-batch from `since` to this offset begins a new snapshot.

        `since` is None if it is unknown.
        """
        if self.lost is None or since == self:
            return False
        if since is None or not since.is_before_snapshot:
            return True
        return (since.lost, since.position) != (self.lost, self.position)

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark stores it."""
        cursor = cursor_to_json(evolve(self.cursor, snapshot=None))
        table_id, is_begun = cursor.pop("id"), self.done > MIN_TOKEN
        late = {"late": {**cursor.pop("late"), **self._rows_to_json()}} if self.cursor.late else {}
        return {
            "version": VERSION,
            "position": self.position,
            "table": self.table,
            "id": table_id,
            "snapshot": str(self.snapshot),
            **({"token": self.done} if self.is_before_snapshot and is_begun else {}),
            **cursor,
            **late,
            **({} if self.began is None else {"began": self.began}),
            **({} if self.began_with is None else {"beganWith": known_to_json(self.began_with)}),
            **({} if self.lost is None else {"lost": [self.lost.start, self.lost.end]}),
            **({"lateRows": self.late_rows} if self.late_rows else {}),
        }

    def _rows_to_json(self) -> dict[str, Any]:
        return {"rows": names_to_json(self.rows)}

    @classmethod
    def from_json(cls, stored: Any) -> Offset:
        """Parse an offset; raise ConfigurationError if this version did not write it."""
        try:
            return _read(stored)
        except (CheckpointError, *UNREADABLE):
            remedy = (
                f"this is no offset of version {VERSION} of the source scylla_cdc: "
                f"{_REMEDIES['checkpointLocation']}"
            )
            found = stored.get("version") if isinstance(stored, Mapping) else None
            shown = stored if found in (None, VERSION) else f"an offset of version {found}"
            raise ConfigurationError("checkpointLocation", shown, remedy) from None

    def again(self, position: int) -> Offset:
        """Return the offset at which a new snapshot as of `position` (µs) begins."""
        cursor = evolve(
            self.cursor,
            position=position,
            snapshot=snapshot_until(MIN_TOKEN, position),
            late=None,
            generations=None,
        )
        return Offset(cursor, self.table, has_snapshot=True)

    def ttls_at(self, state: TableState | TableSchema, now: int) -> TtlHistory:
        """Return the history of the log's TTL up to `now` (µs)."""
        return self.cursor.ttls.updated(state, now, self.position)

    def check_table(
        self, table: TableName, table_id: UUID | None, option: str = "checkpointLocation"
    ) -> None:
        """Raise CheckpointError, naming `option`, if the offset belongs to another table."""
        if self.table != str(table):
            raise CheckpointError(
                f"{option}: the offset belongs to table {self.table}, but the query reads "
                f"{table}: {_REMEDIES[option]}"
            )
        known = self.cursor.table_id
        if table_id is not None and known != table_id:
            raise CheckpointError(
                f"{option}: the offset belongs to table {table} with id {known}, which "
                f"was dropped and created again with id {table_id}: {_REMEDIES[option]}"
            )

    def check_complete(self, option: str) -> None:
        """Raise CheckpointError, naming `option`, if a snapshot is unfinished at the offset."""
        if MIN_TOKEN < self.done < MAX_TOKEN:
            raise CheckpointError(
                f"{option}: the offset is in the middle of a snapshot of {self.table}, which only "
                "the query of its checkpointLocation can complete: give an offset that was "
                "reported after the snapshot was complete"
            )

    def check_snapshot(self, *, wanted: bool, again: bool = False) -> None:
        """Raise CheckpointError if a query with this `snapshot` option cannot resume at the offset.

        A query that takes new snapshots (`again`) can complete any snapshot.
        """
        if wanted and self.snapshot is SnapshotState.NONE:
            raise CheckpointError(
                "snapshot is 'initial', but the query of this checkpointLocation began without "
                "a snapshot, which cannot be read later: leave snapshot out to continue, or "
                "start with a new checkpointLocation"
            )
        if self.is_before_snapshot and not (wanted or again):
            raise CheckpointError(
                "snapshot is 'none', but the query of this checkpointLocation has not read all "
                "of its snapshot: give 'initial' to continue, or start with a new "
                "checkpointLocation"
            )

    def check_new_snapshot(self, mode: DataLossMode) -> None:
        """Raise CheckpointError if the offset is in a new snapshot, and `mode` takes none.

        Without the marks that only `resnapshot` delivers, a copy would keep rows that the table no
        longer has.
        """
        if self.lost is not None and mode is not DataLossMode.RESNAPSHOT:
            raise CheckpointError(
                f"onDataLoss is {mode.value!r}, but the query of this checkpointLocation lost "
                "changes and has not delivered all of the new snapshot: give 'resnapshot' until "
                "the snapshot is complete, or start over with a new target and a new "
                "checkpointLocation"
            )


def snapshot_until(token: int, position: int) -> SnapshotProgress:
    """Return the progress of a snapshot that was read up to `token`.

    Its beginning is not recorded; the log's first `position` (µs) stands for it.
    """
    done = (TokenRange(MIN_TOKEN, token),) if token > MIN_TOKEN else ()
    return SnapshotProgress(position, done=TokenRanges(done))


def _read(stored: Mapping[str, Any]) -> Offset:
    position, began = stored["position"], stored.get("began")
    state = SnapshotState(stored["snapshot"])
    if stored["version"] != VERSION or stored["version"] is True:
        raise ValueError("another version")
    if not is_moment(position) or not (began is None or is_moment(began)):
        raise ValueError("a position is a time in microseconds")
    UUID(stored["id"])
    cursor = cursor_from_json({**stored, "snapshot": None}, position, {})
    token = _token(stored) if "token" in stored else MIN_TOKEN
    if state is SnapshotState.PENDING:
        cursor = evolve(cursor, snapshot=snapshot_until(token, position))
    return Offset(
        cursor,
        str(stored["table"]),
        state is not SnapshotState.NONE,
        names_from_json(stored["late"]["rows"]) if "late" in stored else frozenset(),
        began,
        known_from_json(stored["beganWith"]) if "beganWith" in stored else None,
        _window(stored["lost"]) if "lost" in stored else None,
        int(stored.get("lateRows", 0)),
    )


def _window(stored: Sequence[int]) -> Window:
    start, end = stored
    if not (is_moment(start) and is_moment(end)):
        raise ValueError("expected times in microseconds")
    return Window(start, end)


def _token(stored: Mapping[str, Any]) -> int:
    token: int = stored["token"]
    is_token = type(token) is int and MIN_TOKEN <= token <= MAX_TOKEN
    if not is_token or stored["snapshot"] != SnapshotState.PENDING:
        raise ValueError("expected a token, and a snapshot under way")
    return token
