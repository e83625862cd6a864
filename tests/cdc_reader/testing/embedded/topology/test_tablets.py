"""Tests how the streams of tables that use tablets are chosen for writes, and how they expire."""

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.streams.stream import StreamId
from cdc_reader.testing.embedded.codec.token import MAX_TOKEN, MIN_TOKEN
from cdc_reader.testing.embedded.errors import InvalidRequest, ServerError
from cdc_reader.testing.embedded.topology.tablets import StreamHistory, StreamSet, last_tokens

SECOND = 1_000_000
NOW = 1_795_220_000 * SECOND
LOG_ID = UUID(int=7)
ZERO = (b"\0\0\0\0",)  # int 0, whose token is -3485513579396041028


def history(*sets: tuple[int, int]) -> StreamHistory:
    """Return a history of stream sets, each given as (start in seconds from NOW, tablets)."""
    source = random.Random(1)
    made = (StreamSet.of(tablets, NOW // 1000 + s * 1000, source) for s, tablets in sets)
    return StreamHistory("ks", "t", LOG_ID, tuple(made))


@pytest.mark.parametrize(
    ("key", "token"),
    [
        (ZERO, -1),
        ((b"\0\0\0\2",), -1),
        ((b"\0\0\0\3",), 2**63 - 1),
        ((b"scylla",), 2**62 - 1),
        ((b"\0\0\0\1", b"\0\0\0\x0b"), 2**63 - 1),
    ],
)
def test_the_worked_examples(key: tuple[bytes, ...], token: int) -> None:
    """Of four tablets, a key goes to the first whose last token is not before the key's token."""
    stream = StreamId(history((-5, 4)).stream_id(key, NOW, NOW))
    assert (stream.token, stream.index, stream.version) == (token, 0, 1)


@given(st.integers(0, 10), st.integers(MIN_TOKEN, MAX_TOKEN), st.integers(0, 2**32))
def test_a_write_goes_to_the_tablet_that_holds_it(power: int, token: int, seed: int) -> None:
    """Tablets have equal sizes and cover all tokens, without wrapping around."""
    made = StreamSet.of(1 << power, 0, random.Random(seed))
    size = 2**64 >> power
    assert made.stream_for(token) == made.streams[(token - MIN_TOKEN) // size]
    assert made.last_tokens == tuple(last_tokens(1 << power))
    assert made.last_tokens[-1] == MAX_TOKEN
    assert len(set(made.streams)) == 1 << power


@pytest.mark.parametrize("tablets", [0, -1, 3, 12])
def test_tablets_are_a_power_of_two(tablets: int) -> None:
    """The number of tablets must be a power of two."""
    with pytest.raises(ValueError, match=f"{tablets} tablets: expected a power of two"):
        list(last_tokens(tablets))


@pytest.mark.parametrize(
    ("offset", "index"), [(0, 1), (5, 1), (-1, 1), (-10, 1), (-11, 0), (-100, 0)]
)
def test_a_write_goes_to_the_streams_of_its_time(offset: int, index: int) -> None:
    """A write goes to the streams of its timestamp, even if these are already closed."""
    made = history((-100, 2), (-10, 4), (60, 8))
    assert made.stream_id(ZERO, NOW + offset * SECOND, NOW) in made.sets[index].streams


def test_a_write_before_the_oldest_streams_is_refused() -> None:
    """The error for a write before the oldest streams shows the log's id and the time in µs."""
    with pytest.raises(ServerError) as error:
        history((-5, 2)).stream_id(ZERO, NOW - 5 * SECOND - 1, NOW)
    assert error.value.message == (
        "cdc::metadata::get_stream: could not find any CDC streams for table "
        f"{LOG_ID} for timestamp {NOW - 5 * SECOND - 1}."
    )


def test_a_write_of_the_future_is_refused() -> None:
    """A write more than five seconds ahead is rejected, as with vnodes."""
    with pytest.raises(InvalidRequest, match=r'"from the future" \(2026/11/21 00:13:25'):
        history((-5, 2)).stream_id(ZERO, NOW + 5 * SECOND + 1, NOW)


def test_differences_add_up() -> None:
    """The first stream set opens all its streams, and each later set replaces all streams."""
    made = history((-100, 2), (-50, 4), (-10, 2))
    (_, closed, opened), *later = made.changes()
    assert (closed, opened) == ((), made.sets[0].streams)
    for previous, (current, gone, new) in zip(made.sets, later, strict=False):
        assert (gone, new) == (previous.streams, current.streams)


def test_old_streams_are_forgotten() -> None:
    """`since` keeps the stream set that is current at the given time, and all later sets."""
    made = history((-100, 2), (-50, 4), (60, 8))
    assert made.since(NOW).sets == made.sets[1:]
    assert made.since(NOW - 50 * SECOND).sets == made.sets[1:]
    assert made.since(NOW - 51 * SECOND).sets == made.sets
    assert made.since(NOW - 200 * SECOND).sets == made.sets
