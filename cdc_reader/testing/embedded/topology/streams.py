"""Which stream a write goes to, and which write timestamps are refused.

A write may be up to five seconds ahead of the server's clock. Behind it, newer versions
refuse what is both older than five seconds and not of the current generation; older ones
(`Profile.writes_to_previous_generation` false) whatever precedes the current generation.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta

from attrs import define, field

from cdc_reader.testing.embedded.codec.token import token_of
from cdc_reader.testing.embedded.errors import InvalidRequest, ServerError
from cdc_reader.testing.embedded.profile import Profile
from cdc_reader.testing.embedded.schema.table import MURMUR3
from cdc_reader.testing.embedded.topology.generation import Generation

LEEWAY_US = 5_000_000

_FUTURE = (
    'cdc: attempted to get a stream "from the future" ({write}; current server time: {now}). '
    "With CDC you cannot send writes with timestamps arbitrarily into the future, because we "
    "don't know what streams will be used at that time.\n"
    "We *do* allow sending writes into the near future, but our ability to do that is limited. "
    "If you really must use your own timestamps, then make sure your clocks are "
    "well-synchronized  with the database's clocks."
)
_PAST = (
    'cdc: attempted to get a stream "from the past" ({write}; current server time: {now}). '
    "With CDC you cannot send writes with timestamps too far into the past, because that would "
    "break consistency properties.\n"
    "We *do* allow sending writes into the near past, but our ability to do that is limited. "
    "Are you using client-side timestamps? Make sure your clocks are well-synchronized with the "
    "database's clocks."
)
_EARLIER_GENERATION = (
    "cdc: attempted to get a stream from an earlier generation than the currently used one. "
    "With CDC you cannot send writes with timestamps too far into the past, because that would "
    "break consistency properties (write timestamp: {write}, current generation started at: "
    "{start})"
)
_NO_STREAM = (
    "cdc::metadata::get_stream: could not find any CDC stream for timestamp {write}. "
    "Are we in the middle of a cluster upgrade?"
)
_NO_STREAM_NOW = (
    "cdc::metadata::get_stream: could not find any CDC stream (current time: {now}). "
    "Are we in the middle of a cluster upgrade?"
)


@define
class Streams:
    """The generations that the server knows; implements the write path's `StreamChooser`."""

    profile: Profile = Profile()
    generations: list[Generation] = field(factory=list)

    def add(self, generation: Generation) -> None:
        """Learn of a generation; ValueError unless it begins after those known."""
        if self.generations and generation.timestamp <= self.generations[-1].timestamp:
            raise ValueError(
                f"generation at {generation.timestamp} ms: expected a timestamp after "
                f"{self.generations[-1].timestamp} ms, that of the newest generation"
            )
        self.generations.append(generation)

    def stream_id(self, key: tuple[bytes, ...], write_us: int, now_us: int) -> bytes:
        """The stream of a partition key for a write timestamp; CqlError if it is refused."""
        return self.generation_for(write_us, now_us).stream_for(token_of(MURMUR3, key))

    def generation_for(self, write_us: int, now_us: int) -> Generation:
        """The generation that takes a write; CqlError if none does."""
        if write_us > now_us + LEEWAY_US:
            raise InvalidRequest(self._text(_FUTURE, write=write_us, now=now_us))
        if self.profile.writes_to_previous_generation:
            self._refuse_past(write_us, now_us)
        else:
            self._refuse_earlier_generation(write_us, now_us)
        generation = self._operating_at(write_us)
        if generation is None:
            raise ServerError(self._text(_NO_STREAM, write=write_us))
        return generation

    def _refuse_past(self, write_us: int, now_us: int) -> None:
        if write_us > now_us - LEEWAY_US:
            return
        current = self._operating_at(now_us)
        if current is None or write_us < current.start_us:
            raise InvalidRequest(self._text(_PAST, write=write_us, now=now_us))

    def _refuse_earlier_generation(self, write_us: int, now_us: int) -> None:
        current = self._operating_at(now_us)
        if current is None:
            raise ServerError(self._text(_NO_STREAM_NOW, now=now_us))
        if write_us < current.start_us:
            text = self._text(_EARLIER_GENERATION, write=write_us, start=current.start_us)
            raise InvalidRequest(text)

    def _operating_at(self, moment_us: int) -> Generation | None:
        index = bisect_right(self.generations, moment_us, key=lambda g: g.start_us)
        return self.generations[index - 1] if index else None

    def _text(self, template: str, **moments: int) -> str:
        fraction = self.profile.writes_to_previous_generation
        return template.format(**{k: _date(v, fraction) for k, v in moments.items()})


def _date(micros: int, fraction: bool) -> str:
    """A moment as the server prints it in UTC; years that have no date print as µs."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} us"
    return moment.strftime("%Y/%m/%d %H:%M:%S.%f" if fraction else "%Y/%m/%d %H:%M:%S")
