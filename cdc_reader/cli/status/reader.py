"""The progress of an application, derived from its checkpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeAlias

from attrs import asdict, evolve, frozen

from cdc_reader._time import BEGINNING, FOREVER, Micros, format_timestamp
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.snapshot_progress import SnapshotFigures
from cdc_reader.cql.schema import TableSchema
from cdc_reader.errors import CheckpointError
from cdc_reader.reading.cursor import Checkpoint, check_same_table

SECOND = 1_000_000
_UNITS = (("d", 86_400 * SECOND), ("h", 3_600 * SECOND), ("min", 60 * SECOND), ("s", SECOND))

Lags: TypeAlias = defaultdict[str, list[tuple[Micros, int]]]
"""For each reader, named with its table: times, and the known lag at each time, in µs."""

_NEVER_RAN = "it has no position here: start it, or give --shard if each shard has its own file"
_RECENT, _SURE = 60 * SECOND, 10 * SECOND
"""A trend is derived from the lags of the last minute, if they span at least ten seconds."""
_STEADY = 0.3
"""A lag is steady if it changes by less than this, in seconds per second.

The lag rises and falls even if the reader keeps up, because its position moves in steps."""


@frozen
class Reader:
    """The progress of an application or one of its shards; all times are in µs."""

    name: CheckpointName
    position: Micros | None
    """The time before which all rows are acknowledged; None if there is no such time."""
    lag: int | None = None
    """The age of the oldest unread row; None if unknown, negative if it is in the future."""
    left: int | None = None
    """The time until the first unread rows expire, negative if some may have expired.

    None if it is unknown, or if rows never expire."""
    snapshot: SnapshotFigures | None = None
    """The state of a snapshot that is not complete."""
    fault: str | None = None
    """``cannot resume`` if the table was recreated, ``has lost rows`` if its log was.

    ``never ran`` for a shard without a checkpoint, whose application has other shards."""
    reason: str = ""

    @classmethod
    def of(
        cls,
        name: CheckpointName,
        kept: Checkpoint | None,
        oldest: Micros | None,
        now: Micros,
        base: TableSchema,
    ) -> Reader:
        """Return a checkpoint's progress; the log begins at `oldest` (None: with no generation)."""
        if kept is None:
            return cls(name, None, fault="never ran", reason=_NEVER_RAN)
        position = None if kept.position <= BEGINNING else kept.position
        try:
            check_same_table(evolve(kept, table=name.table), name.table, base.id)
        except CheckpointError as error:
            return cls(name, position, fault="cannot resume", reason=str(error))
        shown = None if kept.snapshot is None else SnapshotFigures.of(name, kept.snapshot, now)
        if (unread := oldest if position is None else position) is None:
            return cls(name, position, snapshot=shown)
        ttls = kept.ttls.updated(base, now, kept.position)
        expires = ttls.expires(unread)
        left = None if expires == FOREVER else expires - now
        reader = cls(name, position, now - unread, left, shown)
        if unread >= ttls.log_lost:
            return reader
        reason = (
            "the log was dropped and created again: its changes since the position, written before "
            f"{format_timestamp(ttls.log_lost)}, are gone"
        )
        return evolve(reader, fault="has lost rows", reason=reason)

    def alarm(self, most: int) -> str | None:
        """Return a message if the reader may lag by more than `most` µs; None otherwise."""
        if self.fault is not None:
            return f"{self} {self.fault}: {self.reason}"
        if self.lag is None:
            return f"the lag of {self} is unknown: the cluster has announced no generation yet"
        if -self.lag > most:
            ahead = duration_text(-self.lag)
            return f"{self} reads nothing yet: its position is {ahead} in the future"
        return f"{self} lags by {duration_text(self.lag)}" if self.lag > most else None

    def to_dict(self) -> dict[str, Any]:
        """Return the reader as JSON values, with durations in seconds."""
        return {
            "application": self.name.application,
            "shard": self.name.shard,
            "position": None if self.position is None else format_timestamp(self.position),
            "position_micros": self.position,
            "lag_seconds": None if self.lag is None else max(0, self.lag) / SECOND,
            "expires_in_seconds": None if self.left is None else self.left / SECOND,
            "snapshot": self.snapshot and asdict(self.snapshot),
            "fault": self.fault and f"{self.fault}: {self.reason}",
        }

    def __str__(self) -> str:
        return f"{self.name.application} ({self.name.shard})"


def duration_text(micros: int) -> str:
    """Format a duration as text, in its two largest units; a negative one as none."""
    parts: list[str] = []
    for unit, size in _UNITS:
        number, micros = divmod(max(0, micros), size)
        if number or parts or unit == "s":
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


def trend(lags: Sequence[tuple[Micros, int]]) -> str:
    """Describe in words how a lag changed in the last minute; empty if unknown."""
    recent = [point for point in lags if point[0] >= lags[-1][0] - _RECENT]
    if not recent or recent[-1][0] - recent[0][0] < _SURE:
        return ""
    (began, first), (now, last) = recent[0], recent[-1]
    slope = (last - first) / (now - began)
    if slope > _STEADY:
        return "not advancing" if slope >= 1 else "falling behind"
    if slope < -_STEADY:
        return f"catching up, {duration_text(round(last / -slope))} left"
    return "steady"
