"""A fault: coordinators that use the streams of a generation not in force."""

from __future__ import annotations

from attrs import define, frozen

from cdc_reader.testing.embedded.topology.streams import Streams
from cdc_reader.testing.embedded.topology.tablets import StreamHistory


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

    chooser: Streams | StreamHistory
    misplacing: Misplacing

    def stream_ids(self, key: tuple[bytes, ...], write_us: int, now_us: int) -> tuple[bytes, ...]:
        """Return the streams that log a write; CqlError if the server refuses the timestamp."""
        stream = self.chooser.stream_id(key, write_us, now_us)
        by = self.misplacing.by
        if not by or (other := self.chooser.neighbour(key, write_us, by)) is None:
            return (stream,)
        return (stream, other) if self.misplacing.twice else (other,)
