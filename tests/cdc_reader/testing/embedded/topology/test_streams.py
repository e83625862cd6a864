"""Tests which write timestamps are accepted, and the errors for all others."""

from uuid import UUID

import pytest

from cdc_reader.testing.embedded.errors import InvalidRequest, ServerError
from cdc_reader.testing.embedded.profile import profile
from cdc_reader.testing.embedded.topology.generation import Generation, StreamRange
from cdc_reader.testing.embedded.topology.streams import Streams

SECOND = 1_000_000
NOW = 1_795_220_000 * SECOND + 123
OLD, CURRENT, NEXT = (
    Generation((NOW + offset) // 1000, UUID(int=0), (StreamRange(0, (name * 16,)),))
    for offset, name in ((-100 * SECOND, b"o"), (-2 * SECOND, b"c"), (3 * SECOND, b"n"))
)
KEY = (b"\0\0\0\1",)


def streams(version: str, *generations: Generation) -> Streams:
    """Return the streams of a server of this version with these generations."""
    return Streams(profile(version), list(generations))


@pytest.mark.parametrize("version", ["5.2", "2026.2"])
@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, b"c"), (-SECOND, b"c"), (3 * SECOND + 1, b"n"), (5 * SECOND, b"n"), (SECOND, b"c")],
)
def test_a_write_near_now_goes_to_the_generation_of_its_time(
    version: str, offset: int, expected: bytes
) -> None:
    """A write goes to the generation of its time, even to a generation that starts shortly."""
    found = streams(version, OLD, CURRENT, NEXT).stream_id(KEY, NOW + offset, NOW)
    assert found == expected * 16


@pytest.mark.parametrize("version", ["5.2", "2026.2"])
def test_a_write_of_the_future_is_refused(version: str) -> None:
    """A write more than five seconds ahead of the server's clock is rejected."""
    with pytest.raises(InvalidRequest, match=r'"from the future" \(2026/11/21 00:13:25') as error:
        streams(version, OLD, CURRENT).stream_id(KEY, NOW + 5 * SECOND + 1, NOW)
    assert error.value.message.endswith("well-synchronized  with the database's clocks.")


def test_an_old_write_to_the_current_generation_is_accepted() -> None:
    """A write to the current generation is accepted, however old it is."""
    assert streams("2026.2", OLD).stream_id(KEY, OLD.start_us, NOW + 10**12) == b"o" * 16


def test_newer_versions_accept_five_seconds_into_the_previous_generation() -> None:
    """Writes to the previous generation are accepted if they are less than five seconds old."""
    server = streams("2026.2", OLD, CURRENT)
    assert server.stream_id(KEY, NOW - 5 * SECOND + 1, NOW) == b"o" * 16
    with pytest.raises(InvalidRequest, match=r'"from the past" \(2026/11/21 00:13:15.000123; cur'):
        server.stream_id(KEY, NOW - 5 * SECOND, NOW)


def test_older_versions_refuse_the_previous_generation() -> None:
    """Writes to the previous generation are rejected with the recorded message of 5.2."""
    server = streams("5.2", OLD, CURRENT)
    with pytest.raises(InvalidRequest) as error:
        server.stream_id(KEY, 1, NOW)
    assert error.value.message == (
        "cdc: attempted to get a stream from an earlier generation than the currently used one. "
        "With CDC you cannot send writes with timestamps too far into the past, because that "
        "would break consistency properties (write timestamp: 1970/01/01 00:00:00, current "
        "generation started at: 2026/11/21 00:13:18)"
    )
    with pytest.raises(InvalidRequest, match="earlier generation"):
        server.stream_id(KEY, CURRENT.start_us - 1, NOW)


def test_without_a_generation_there_is_no_stream() -> None:
    """Without a generation, a write fails with a server error, as in ScyllaDB during an upgrade."""
    with pytest.raises(ServerError, match="could not find any CDC stream for timestamp"):
        streams("2026.2", NEXT).stream_id(KEY, NOW, NOW)
    with pytest.raises(ServerError, match=r"could not find any CDC stream \(current time"):
        streams("5.2", NEXT).stream_id(KEY, NOW, NOW)


def test_absurd_timestamps_are_refused_too() -> None:
    """Timestamps that no calendar can represent are rejected."""
    with pytest.raises(InvalidRequest, match="from the future"):
        streams("2026.2", OLD).stream_id(KEY, 2**63 - 1, NOW)
    with pytest.raises(InvalidRequest, match="from the past"):
        streams("2026.2", OLD).stream_id(KEY, -(2**63), NOW)


def test_generations_come_in_order_of_time() -> None:
    """Generations must be added in order of time, so one before the newest is rejected."""
    with pytest.raises(ValueError, match="expected a timestamp after"):
        streams("2026.2", CURRENT).add(OLD)
