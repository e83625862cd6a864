"""The streams of tables that use tablets: each table has its own streams, one per tablet.

When a table's tablets are split or merged, a new set of streams replaces the previous set, just as
a new generation replaces the streams of tables that use vnodes. A late write is rejected only if
its timestamp is before the start of the oldest known set.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property
from uuid import UUID

from attrs import evolve, frozen

from cdc_reader.streams.stream import StreamId
from cdc_reader.testing.embedded.codec.token import MIN_TOKEN, cdc_token, token_of
from cdc_reader.testing.embedded.schema.table import MURMUR3
from cdc_reader.testing.embedded.topology.refusals import Refusals

_RING = 1 << 64
_RANDOM_BITS = 38


@frozen(slots=False)
class StreamSet:
    """The streams that are current from `timestamp` (ms) on: one per tablet, in token order."""

    timestamp: int
    streams: tuple[bytes, ...]

    @classmethod
    def of(cls, tablets: int, timestamp: int, source: random.Random) -> StreamSet:
        """Create a stream per tablet, with the tablet's last token; `tablets` is a power of two."""
        streams = (
            bytes(StreamId.from_parts(token, source.getrandbits(_RANDOM_BITS), index=0))
            for token in last_tokens(tablets)
        )
        return cls(timestamp, tuple(streams))

    @property
    def start_us(self) -> int:
        """The start, in µs."""
        return self.timestamp * 1000

    @cached_property
    def last_tokens(self) -> tuple[int, ...]:
        """The last token of each tablet; the last tablet ends at the largest token."""
        return tuple(map(cdc_token, self.streams))

    def stream_for(self, token: int) -> bytes:
        """Return the stream of a partition key's token."""
        return self.streams[bisect_left(self.last_tokens, token)]

    def without(self, other: StreamSet) -> tuple[bytes, ...]:
        """Return the streams that are not in `other`."""
        known = frozenset(other.streams)
        return tuple(stream for stream in self.streams if stream not in known)


@frozen
class StreamHistory:
    """The stream sets of the base table `table`, oldest first; chooses the stream of a write."""

    keyspace: str
    table: str
    log_id: UUID
    sets: tuple[StreamSet, ...]
    refusals: Refusals = Refusals()

    @property
    def newest(self) -> StreamSet:
        """The last set, which may start in the future."""
        return self.sets[-1]

    def stream_id(self, key: tuple[bytes, ...], write_us: int, now_us: int) -> bytes:
        """Return the stream for a key and a timestamp; raise CqlError for a rejected timestamp."""
        self.refusals.check_future(write_us, now_us)
        index = self._operating_at(write_us)
        if index is None:
            raise self.refusals.no_stream_of_table(self.log_id, write_us)
        return self.sets[index].stream_for(token_of(MURMUR3, key))

    def neighbour(self, key: tuple[bytes, ...], write_us: int, by: int) -> bytes | None:
        """Return the key's stream `by` sets after the write's set; None if there is no such set."""
        index = self._operating_at(write_us)
        if index is None or not 0 <= index + by < len(self.sets):
            return None
        return self.sets[index + by].stream_for(token_of(MURMUR3, key))

    def with_set(self, added: StreamSet) -> StreamHistory:
        """Return the history extended by this set."""
        return evolve(self, sets=(*self.sets, added))

    def since(self, moment_us: int) -> StreamHistory:
        """Return the history that begins with the set that is current at `moment_us`."""
        return evolve(self, sets=self.sets[self._operating_at(moment_us) or 0 :])

    def changes(self) -> Iterator[tuple[StreamSet, tuple[bytes, ...], tuple[bytes, ...]]]:
        """Yield (set, streams it closes, streams it opens); the first set opens all its streams."""
        previous = StreamSet(0, ())
        for each in self.sets:
            yield each, previous.without(each), each.without(previous)
            previous = each

    def _operating_at(self, moment_us: int) -> int | None:
        index = bisect_right(self.sets, moment_us, key=lambda each: each.start_us)
        return index - 1 if index else None


def last_tokens(tablets: int) -> Iterator[int]:
    """Yield the last token of each tablet; raise ValueError unless `tablets` is a power of two."""
    if tablets < 1 or tablets & tablets - 1:
        raise ValueError(f"{tablets} tablets: expected a power of two")
    for index in range(tablets):
        yield MIN_TOKEN + (index + 1) * _RING // tablets - 1
