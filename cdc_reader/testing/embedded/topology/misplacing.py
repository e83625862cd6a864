"""A fault: coordinators use the streams of a generation that is not current."""

from __future__ import annotations

from attrs import define, frozen

from cdc_reader.testing.embedded.topology.streams import Streams
from cdc_reader.testing.embedded.topology.tablets import StreamHistory


@define
class Misplacing:
    """Settings of the fault: a write is logged `by` generations after the current one.

    If `by` is negative, the write is logged in an earlier generation. If `twice` is True,
    the write is logged in the current stream too, as in ScyllaDB 5.2 when generations changed.
    """

    by: int = 0
    twice: bool = False


@frozen
class MisplacingChooser:
    """A log's `StreamChooser` that is subject to the fault."""

    chooser: Streams | StreamHistory
    misplacing: Misplacing

    def stream_ids(self, key: tuple[bytes, ...], write_us: int, now_us: int) -> tuple[bytes, ...]:
        """Return the streams that log a write; raise CqlError if its timestamp is rejected."""
        stream = self.chooser.stream_id(key, write_us, now_us)
        by = self.misplacing.by
        if not by or (other := self.chooser.neighbour(key, write_us, by)) is None:
            return (stream,)
        return (stream, other) if self.misplacing.twice else (other,)
