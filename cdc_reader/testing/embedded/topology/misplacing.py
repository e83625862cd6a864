"""A fault: coordinators that use the streams of a generation not in force."""

from __future__ import annotations

from typing import Protocol

from attrs import define, frozen


class NeighbourChooser(Protocol):
    """Chooses streams of the generation in force, or of one beside it."""

    def stream_id(self, key: tuple[bytes, ...], write_us: int, now_us: int) -> bytes:
        """Return the stream in force; CqlError if the server refuses the timestamp."""

    def neighbour(self, key: tuple[bytes, ...], write_us: int, by: int) -> bytes | None:
        """Return the stream `by` generations after the one in force; None if there is none."""


@define
class Misplacing:
    """The settings of the fault: log writes `by` generations after the one in force (-1: before).

    With `twice`, log them in the stream in force as well, as ScyllaDB 5.2 did around switches.
    """

    by: int = 0
    twice: bool = False


@frozen
class MisplacingChooser:
    """The `StreamChooser` of a log, subject to the fault."""

    chooser: NeighbourChooser
    misplacing: Misplacing

    def stream_ids(self, key: tuple[bytes, ...], write_us: int, now_us: int) -> tuple[bytes, ...]:
        """Return the streams that log a write; CqlError if the server refuses the timestamp."""
        stream = self.chooser.stream_id(key, write_us, now_us)
        by = self.misplacing.by
        if not by or (other := self.chooser.neighbour(key, write_us, by)) is None:
            return (stream,)
        return (stream, other) if self.misplacing.twice else (other,)
