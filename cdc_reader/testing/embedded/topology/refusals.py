"""ScyllaDB's errors for write timestamps.

Times are in UTC. Versions that accept writes to the previous generation print fractional seconds.
"""

from __future__ import annotations

from uuid import UUID

from attrs import frozen

from cdc_reader._time import as_datetime
from cdc_reader.testing.embedded.errors import InvalidRequest, ServerError
from cdc_reader.testing.embedded.profile import Profile

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
_NO_STREAM_OF_TABLE = (
    "cdc::metadata::get_stream: could not find any CDC streams for table {table} for timestamp "
    "{write}."
)


@frozen
class Refusals:
    """A server version's errors for rejected write timestamps; all times are in µs."""

    profile: Profile = Profile()

    def check_future(self, write_us: int, now_us: int) -> None:
        """Raise InvalidRequest if a write is too far ahead of the server's clock."""
        if write_us > now_us + LEEWAY_US:
            raise InvalidRequest(self._text(_FUTURE, write=write_us, now=now_us))

    def past(self, write_us: int, now_us: int) -> InvalidRequest:
        return InvalidRequest(self._text(_PAST, write=write_us, now=now_us))

    def earlier_generation(self, write_us: int, start_us: int) -> InvalidRequest:
        return InvalidRequest(self._text(_EARLIER_GENERATION, write=write_us, start=start_us))

    def no_stream(self, write_us: int) -> ServerError:
        return ServerError(self._text(_NO_STREAM, write=write_us))

    def no_stream_now(self, now_us: int) -> ServerError:
        return ServerError(self._text(_NO_STREAM_NOW, now=now_us))

    def no_stream_of_table(self, table_id: UUID, write_us: int) -> ServerError:
        """Return the error for a table with tablets; its message shows the time as a number."""
        return ServerError(_NO_STREAM_OF_TABLE.format(table=table_id, write=write_us))

    def _text(self, template: str, **moments: int) -> str:
        fraction = self.profile.writes_to_previous_generation
        return template.format(**{k: _date(v, fraction) for k, v in moments.items()})


def _date(micros: int, fraction: bool) -> str:
    """Format a time in UTC as ScyllaDB does; times outside the years 1 to 9999 remain in µs."""
    try:
        moment = as_datetime(micros)
    except OverflowError:
        return f"{micros} us"
    return moment.strftime("%Y/%m/%d %H:%M:%S.%f" if fraction else "%Y/%m/%d %H:%M:%S")
