"""The progress of an application, derived from its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from attrs import asdict, evolve, frozen

from cdc_reader._time import BEGINNING, FOREVER, Micros, format_timestamp
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.following import since
from cdc_reader.cli.snapshot_progress import SnapshotFigures
from cdc_reader.errors import CheckpointError
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.progress import Checkpoint, check_same_table

SECOND = 1_000_000
_UNITS = (("d", 86_400 * SECOND), ("h", 3_600 * SECOND), ("min", 60 * SECOND), ("s", SECOND))


@frozen
class Reader:
    """The progress of an application or one of its shards. All times and `now` are in µs."""

    name: CheckpointName
    checkpoint: Checkpoint
    oldest: Micros | None
    """The write time before which the log has no rows; None if there is no generation yet."""
    now: Micros
    ttls: TtlHistory
    """The known TTLs of the log, over time."""
    table_id: UUID | None
    """The table's current id."""

    @property
    def position(self) -> Micros | None:
        """The time before which all rows are acknowledged.

        None if reading begins at the oldest row.
        """
        position = self.checkpoint.position
        return None if position <= BEGINNING else position

    @property
    def refusal(self) -> str | None:
        """The reason why the checkpoint cannot be resumed (the table was recreated), or None."""
        try:
            kept = evolve(self.checkpoint, table=self.name.table)
            check_same_table(kept, self.name.table, self.table_id)
        except CheckpointError as error:
            return str(error)
        return None

    @property
    def loss(self) -> str | None:
        """A message about changes lost because the log was dropped and created again.

        None if nothing was lost.
        """
        lost = self.ttls.log_lost
        if self._unread is None or self._unread >= lost:
            return None
        return (
            "the log was dropped and created again: its changes since the position, written before "
            f"{format_timestamp(lost)}, are gone"
        )

    @property
    def snapshot(self) -> SnapshotFigures | None:
        """The state of a snapshot that is not complete; None if there is none."""
        kept = self.checkpoint.snapshot
        return None if kept is None else SnapshotFigures.of(self.name, kept, self.now)

    @property
    def lag(self) -> int | None:
        """The age of the oldest row that may be unread; None if unknown."""
        return None if self._unread is None else max(0, self.now - self._unread)

    def alarm(self, most: int) -> str | None:
        """Return a message if the reader may lag by more than `most` µs; None otherwise."""
        if self.refusal is not None:
            return f"{self} cannot resume: {self.refusal}"
        if self.loss is not None:
            return f"{self} has lost rows: {self.loss}"
        if self.position is not None and self.position - self.now > most:
            ahead = duration_text(self.position - self.now)
            return f"{self} reads nothing yet: its position is {ahead} in the future"
        if self.lag is None:
            return f"the lag of {self} is unknown: the cluster has announced no generation yet"
        return f"{self} lags by {duration_text(self.lag)}" if self.lag > most else None

    @property
    def left(self) -> int | None:
        """The time until the first unread rows expire; negative if some may have expired."""
        expires = self._expires
        return None if expires is None or expires == FOREVER else expires - self.now

    @property
    def _expires(self) -> Micros | None:
        return None if self._unread is None else self.ttls.expires(self._unread)

    @property
    def _unread(self) -> Micros | None:
        if self.refusal is not None:
            return None
        return self.oldest if self.position is None else self.position

    def to_dict(self) -> dict[str, Any]:
        """Return the reader as JSON values, with durations in seconds."""
        position = self.position
        return {
            "application": self.name.application,
            "shard": self.name.shard,
            "position": _time(position),
            "position_micros": position,
            "lag_seconds": _seconds(self.lag),
            "expires_in_seconds": _seconds(self.left),
            "generation": _time(self.checkpoint.generation),
            "marked_streams": len(self.checkpoint.marks),
            "late_scan_at": _time(self.checkpoint.late_scan_at),
            "snapshot": None if self.snapshot is None else asdict(self.snapshot),
            "refusal": self.refusal,
            "loss": self.loss,
        }

    def cells(self) -> Iterator[str]:
        """Return the cells of the reader's row in the table that is shown."""
        yield self.name.application
        yield self.name.shard
        yield since(self.checkpoint.position)
        yield "-" if self.lag is None else duration_text(self.lag)
        yield str(len(self.checkpoint.marks))
        yield self.expiry

    def __str__(self) -> str:
        return f"{self.name.application} ({self.name.shard})"

    @property
    def expiry(self) -> str:
        """When the first unread rows expire, as text."""
        if self._expires == FOREVER:
            return "never"
        if self.left is None:
            return "-"
        return (
            f"in {duration_text(self.left)}"
            if self.left >= 0
            else f"since {duration_text(-self.left)}"
        )


def duration_text(micros: int) -> str:
    """Format a duration as text, in its two largest units."""
    parts: list[str] = []
    for unit, size in _UNITS:
        number, micros = divmod(micros, size)
        if number or parts or unit == "s":
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / SECOND


def _time(micros: Micros | None) -> str | None:
    return None if micros is None else format_timestamp(micros)
