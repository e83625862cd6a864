from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql import timeuuid

MOMENTS = st.integers(timeuuid.MIN_MICROS, timeuuid.MAX_MICROS)
LOW = st.binary(min_size=8, max_size=8)


def test_the_documented_times_have_their_documented_uuids() -> None:
    """Computed UUIDs match two UUIDs from a server.

    One is a sample, and the other is the `minTimeuuid` of a millisecond.
    """
    assert str(timeuuid.bound(1606390225588947)).startswith("c72c7c3e-2fda-11eb-")
    assert str(timeuuid.bound(1606390225588000)) == "c72c5740-2fda-11eb-8080-808080808080"


@given(MOMENTS, LOW)
def test_the_write_timestamp_comes_back_exactly(micros: int, low: bytes) -> None:
    """The write timestamp is recovered exactly, whatever the random bits are."""
    assert timeuuid.micros(timeuuid.make(micros, low).bytes) == micros


@given(MOMENTS, LOW, MOMENTS, MOMENTS)
def test_bounds_cut_the_server_s_order_at_the_microsecond(
    micros: int, low: bytes, start: int, end: int
) -> None:
    """A range from bound(start) to bound(end), end excluded, selects the times in [start, end)."""
    key = timeuuid.order_key(timeuuid.make(micros, low).bytes)
    first, last = (timeuuid.order_key(timeuuid.bound(bound).bytes) for bound in (start, end))
    assert (first <= key < last) == (start <= micros < end)


def test_low_halves_order_as_signed_bytes() -> None:
    """The low halves of UUIDs are ordered as signed bytes, from 80...80 to 7f...7f."""
    halves = [timeuuid.SMALLEST_LOW, b"\xff" * 8, bytes(8), timeuuid.LARGEST_LOW]
    keys = [timeuuid.order_key(timeuuid.make(0, half).bytes) for half in halves]
    assert keys == sorted(keys)


@given(st.uuids())
def test_any_sixteen_bytes_have_a_time(raw: uuid.UUID) -> None:
    """Any 16 bytes encode a time, because the version bits are not part of the time."""
    assert timeuuid.ticks(raw.bytes) == raw.time


def test_bounds_beyond_the_range_are_its_ends() -> None:
    """Bounds outside the valid range are clamped to it, because windows may have no end."""
    assert timeuuid.bound(1 << 62) == timeuuid.bound(timeuuid.MAX_MICROS)
    assert timeuuid.bound(-(1 << 62)) == timeuuid.bound(timeuuid.MIN_MICROS)


def test_a_time_beyond_the_range_is_refused() -> None:
    """A record's time outside the valid range is rejected, not clamped."""
    with pytest.raises(ValueError, match="out of range"):
        timeuuid.make(timeuuid.MAX_MICROS + 1, bytes(8))
