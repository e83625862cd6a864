"""A fault: coordinators use the streams of a generation that is not current."""

from __future__ import annotations

from attrs import define, frozen

from cdc_reader.testing.embedded.topology.streams import Streams
from cdc_reader.testing.embedded.topology.tablets import StreamHistory


@define
class Misplacing:
    """Settings of the fault that logs writes in the wrong generation.

    `by` is the distance from the current generation to the generation in which a write is logged. A
    negative distance means an earlier generation. If `twice` is True, the write is logged in the
    current stream too, as ScyllaDB 5.2 did when generations changed.
    """

    by: int = 0
    twice: bool = False


@frozen
class MisplacingChooser:
    """A log's `StreamChooser` that misplaces writes as `misplacing` specifies."""

    chooser: Streams | StreamHistory
    misplacing: Misplacing

    def stream_ids(self, key: tuple[bytes, ...], write_us: int, now_us: int) -> tuple[bytes, ...]:
        """Return the streams in which to log a write; raise CqlError for a rejected timestamp."""
        stream = self.chooser.stream_id(key, write_us, now_us)
        by = self.misplacing.by
        if not by or (other := self.chooser.neighbour(key, write_us, by)) is None:
            return (stream,)
        return (stream, other) if self.misplacing.twice else (other,)
