"""Offsets of a stream: a position in the log of one table, as Spark stores it in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from uuid import UUID

from attrs import evolve, frozen

from cdc_reader.checkpoints.spark import VERSION
from cdc_reader.config import DataLossMode
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import TableSchema, TableState
from cdc_reader.errors import CheckpointError, ConfigurationError
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.progress import is_moment
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.offsets.generations import KnownGenerations
from pyspark_scylla_cdc.offsets.late import Late

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
    """An offset: every log row written before `position` (µs since 1970) has been delivered.

    It belongs to the `table` (``keyspace.name``) with the id `table_id`.

    Spark compares offsets as JSON text, so the order of keys is part of the format. While the
    position stays the same, an offset changes only if late rows, or the rows of a generation that
    was announced late, are delivered.
    """

    position: int
    snapshot: SnapshotState
    table: str
    table_id: UUID
    ttls: TtlHistory = TtlHistory()
    late: Late | None = None
    """The late rows delivered; None if the query does not deliver late rows."""
    began: int | None = None
    """The start of the query's first micro-batch, in µs. Only the offset at the end of that
    micro-batch contains it; in other offsets it is None."""
    token: int | None = None
    """During a snapshot, the token up to which partitions have been delivered."""
    lost: Window | None = None
    """The window of the lost changes that made a new snapshot necessary; set at the end of the
    snapshot's first micro-batch, and until the snapshot is complete.
    """
    generations: KnownGenerations | None = None
    """The known generations; None before the log is read."""
    late_rows: int = 0
    """Late rows found since the previous offset, but not delivered. They are counted at the next
    offset that changes for another reason, because Spark runs a micro-batch for each new offset.
    """

    @property
    def is_before_snapshot(self) -> bool:
        """True if rows of the base table are still to be read, as of `position`."""
        return self.snapshot is SnapshotState.PENDING

    @property
    def done(self) -> int:
        """The token up to which the base table need not be read again."""
        if not self.is_before_snapshot:
            return MAX_TOKEN
        return MIN_TOKEN if self.token is None else self.token

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
        return {
            "version": VERSION,
            "position": self.position,
            "table": self.table,
            "id": str(self.table_id),
            "snapshot": str(self.snapshot),
            **({} if self.token is None else {"token": self.token}),
            "ttl": [list(change) for change in self.ttls.changes],
            **self.ttls.logs_to_json(),
            **({} if self.generations is None else {"generations": self.generations.to_json()}),
            **({} if self.late is None else {"late": self.late.to_json()}),
            **({} if self.began is None else {"began": self.began}),
            **({} if self.lost is None else {"lost": [self.lost.start, self.lost.end]}),
            **({"lateRows": self.late_rows} if self.late_rows else {}),
        }

    @classmethod
    def from_json(cls, stored: Any) -> Offset:
        """Parse an offset; raise ConfigurationError if this version did not write it."""
        try:
            return _read(stored)
        except (KeyError, TypeError, ValueError, AttributeError):
            remedy = (
                f"this is no offset of version {VERSION} of the source scylla_cdc: "
                f"{_REMEDIES['checkpointLocation']}"
            )
            found = stored.get("version") if isinstance(stored, Mapping) else None
            shown = stored if found in (None, VERSION) else f"an offset of version {found}"
            raise ConfigurationError("checkpointLocation", shown, remedy) from None

    def moved(
        self,
        position: int,
        state: TableState,
        now: int,
        late: Late | None = None,
        began: int | None = None,
        done: int = MAX_TOKEN,
        lost: Window | None = None,
        generations: KnownGenerations | None = None,
    ) -> Offset:
        """Return the offset at the end of a micro-batch that ends at `position` (µs).

        `state` is the table's state as of `now` (µs). `done` is the token up to which a snapshot
        has been read. `lost` is the window of the expired changes that made a new snapshot
        necessary. The offset's TTL history reaches back to `position` or, if it is older, to the
        oldest read recorded in `late`.
        """
        oldest = position if late is None else min(position, *late.reads.reads)
        snapshot, token = self.snapshot, None
        if self.is_before_snapshot and done < MAX_TOKEN:
            token = done
        elif self.is_before_snapshot:
            snapshot = SnapshotState.DONE
        return evolve(
            self,
            position=position,
            snapshot=snapshot,
            token=token,
            ttls=self.ttls_at(state, now).after(oldest),
            late=late,
            began=began,
            lost=lost,
            generations=generations,
        )

    def again(self, position: int) -> Offset:
        """Return the offset at which a new snapshot as of `position` (µs) begins."""
        return evolve(
            self,
            position=position,
            snapshot=SnapshotState.PENDING,
            late=None,
            began=None,
            token=None,
            lost=None,
            generations=None,
            late_rows=0,
        )

    def ttls_at(self, state: TableState | TableSchema, now: int) -> TtlHistory:
        """Return the history of the log's TTL up to `now` (µs)."""
        return self.ttls.updated(state, now, self.position)

    def check_table(
        self, table: TableName, table_id: UUID | None, option: str = "checkpointLocation"
    ) -> None:
        """Raise CheckpointError, naming `option`, if the offset belongs to another table."""
        if self.table != str(table):
            raise CheckpointError(
                f"{option}: the offset belongs to table {self.table}, but the query reads "
                f"{table}: {_REMEDIES[option]}"
            )
        if table_id is not None and self.table_id != table_id:
            raise CheckpointError(
                f"{option}: the offset belongs to table {table} with id {self.table_id}, which "
                f"was dropped and created again with id {table_id}: {_REMEDIES[option]}"
            )

    def check_complete(self, option: str) -> None:
        """Raise CheckpointError, naming `option`, if a snapshot is unfinished at the offset."""
        if self.token is not None:
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


def _read(stored: Mapping[str, Any]) -> Offset:
    position, began = stored["position"], stored.get("began")
    if stored["version"] != VERSION:
        raise ValueError("another version")
    if not is_moment(position) or not (began is None or is_moment(began)):
        raise ValueError("a position is a time in microseconds")
    return Offset(
        position,
        SnapshotState(stored["snapshot"]),
        str(stored["table"]),
        UUID(stored["id"]),
        TtlHistory.from_json(stored["ttl"], stored),
        Late.from_json(stored["late"]) if "late" in stored else None,
        began,
        _token(stored) if "token" in stored else None,
        Window(*map(int, stored["lost"])) if "lost" in stored else None,
        KnownGenerations.from_json(stored["generations"]) if "generations" in stored else None,
        int(stored.get("lateRows", 0)),
    )


def _token(stored: Mapping[str, Any]) -> int:
    token: int = stored["token"]
    if type(token) is not int or stored["snapshot"] != SnapshotState.PENDING:
        raise ValueError("expected a token, and a snapshot under way")
    return token
