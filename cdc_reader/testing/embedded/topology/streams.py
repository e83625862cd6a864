"""Chooses the stream of a write to a table that uses vnodes, and rejects write timestamps.

A write may be up to five seconds ahead of the server's clock. Newer versions reject a write that
is both older than five seconds and before the current generation. Older versions (in which
`Profile.writes_to_previous_generation` is False) reject every write before the current generation.
"""

from __future__ import annotations

from bisect import bisect_right

from attrs import Factory, define, field

from cdc_reader.testing.embedded.codec.token import token_of
from cdc_reader.testing.embedded.profile import Profile
from cdc_reader.testing.embedded.schema.table import MURMUR3
from cdc_reader.testing.embedded.topology.generation import Generation
from cdc_reader.testing.embedded.topology.refusals import LEEWAY_US, Refusals


@define
class Streams:
    """All generations so far; chooses streams for writes to tables that use vnodes."""

    profile: Profile = Profile()
    generations: list[Generation] = field(factory=list)
    _refusals: Refusals = field(
        init=False, default=Factory(lambda self: Refusals(self.profile), takes_self=True)
    )

    def add(self, generation: Generation) -> None:
        """Add a generation; raise ValueError unless it begins after the known ones."""
        if self.generations and generation.timestamp <= self.generations[-1].timestamp:
            raise ValueError(
                f"generation at {generation.timestamp} ms: expected a timestamp after "
                f"{self.generations[-1].timestamp} ms, that of the newest generation"
            )
        self.generations.append(generation)

    def stream_id(self, key: tuple[bytes, ...], write_us: int, now_us: int) -> bytes:
        """Return the stream for a key and a timestamp; raise CqlError for a rejected timestamp."""
        return self.generation_for(write_us, now_us).stream_for(token_of(MURMUR3, key))

    def neighbour(self, key: tuple[bytes, ...], write_us: int, by: int) -> bytes | None:
        """Return the key's stream in a generation at the distance `by` from the write's generation.

        A negative distance means an earlier generation. Returns None if that generation does not
        exist or has no streams.
        """
        at = bisect_right(self.generations, write_us, key=lambda g: g.start_us) - 1 + by
        if not 0 <= at < len(self.generations) or not self.generations[at].ranges:
            return None
        return self.generations[at].stream_for(token_of(MURMUR3, key))

    def generation_for(self, write_us: int, now_us: int) -> Generation:
        """Return the generation in which to log a write.

        Raises CqlError if the timestamp is rejected, or if the generation is missing or has no
        streams.
        """
        self._refusals.check_future(write_us, now_us)
        if self.profile.writes_to_previous_generation:
            self._refuse_past(write_us, now_us)
        else:
            self._refuse_earlier_generation(write_us, now_us)
        generation = self._operating_at(write_us)
        if generation is None or not generation.ranges:
            raise self._refusals.no_stream(write_us)
        return generation

    def _refuse_past(self, write_us: int, now_us: int) -> None:
        if write_us > now_us - LEEWAY_US:
            return
        current = self._operating_at(now_us)
        if current is None or write_us < current.start_us:
            raise self._refusals.past(write_us, now_us)

    def _refuse_earlier_generation(self, write_us: int, now_us: int) -> None:
        current = self._operating_at(now_us)
        if current is None:
            raise self._refusals.no_stream_now(now_us)
        if write_us < current.start_us:
            raise self._refusals.earlier_generation(write_us, current.start_us)

    def _operating_at(self, moment_us: int) -> Generation | None:
        index = bisect_right(self.generations, moment_us, key=lambda g: g.start_us)
        return self.generations[index - 1] if index else None
