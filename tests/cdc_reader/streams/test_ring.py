"""Merging, subtracting and cutting of token ranges."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.streams.range_cutter import RangeCutter
from cdc_reader.streams.ring import WHOLE_RING, TokenRange, TokenRanges
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN

tokens = st.integers(MIN_TOKEN, MAX_TOKEN)
few = st.integers(0, 20)
ranges = st.lists(st.builds(TokenRange, few, few), max_size=6)


def members(ranges: TokenRanges | list[TokenRange]) -> set[int]:
    """Return the tokens below 22 that are in any of the ranges."""
    return {token for token in range(22) for each in ranges if token in each}


@given(ranges, ranges)
def test_ranges_are_sets_of_tokens(some: list[TokenRange], others: list[TokenRange]) -> None:
    """`adding` returns the union of ranges, and `without` returns the difference.

    `size` is the number of tokens.
    """
    first, second = TokenRanges(some), TokenRanges(others)
    assert members(first) == members(some)
    assert members(first.adding(*others)) == members(some) | members(others)
    left = first.without(second)
    assert members(left) == members(some) - members(others)
    assert left.size == len(members(left))


@given(ranges)
def test_ranges_that_adjoin_become_one(some: list[TokenRange]) -> None:
    """Adjacent ranges merge, so the list of completed ranges stays short."""
    merged = list(TokenRanges(some))
    assert all(a.end < b.start for a, b in pairwise(merged))


@given(
    st.lists(tokens, max_size=20),
    st.lists(st.integers(0, 10**9), min_size=1),
    st.integers(1, 10_000),
)
def test_cut_ranges_cover_the_ring_once(ends: list[int], rows: list[int], target: int) -> None:
    """Cut ranges cover the ring once, whatever their row counts, even if some are put back."""
    cutter = RangeCutter(WHOLE_RING, sorted(ends), target)
    found: list[TokenRange] = []
    for number in range(400):
        if (cut := cutter.next()) is None:
            break
        if number % 7 == 3:
            cutter.put_back([cut])
            continue
        cutter.record(cut, rows[number % len(rows)])
        found.append(cut)
    rest: list[TokenRange] = []
    while (cut := cutter.next()) is not None and len(rest) < 10_000:
        cutter.record(cut, 0)
        rest.append(cut)
    assert TokenRanges([*found, *rest]) == WHOLE_RING
    assert sum(each.size for each in (*found, *rest)) == WHOLE_RING.size


def test_ranges_take_the_size_that_their_rows_ask_for() -> None:
    """If rows are evenly spread, each range after the first few has about the target row count."""
    cutter = RangeCutter(WHOLE_RING, (), 1_000)
    density = 1_000_000 / WHOLE_RING.size
    sizes = []
    while (cut := cutter.next()) is not None:
        sizes.append(cut.size * density)
        cutter.record(cut, int(cut.size * density))
    assert len(sizes) < 1_100
    assert all(900 < size < 1_100 for size in sizes[5:-1])


def test_an_empty_table_takes_few_ranges() -> None:
    """Ranges grow while they are empty, so an empty table takes fewer than ten ranges."""
    cutter, count = RangeCutter(WHOLE_RING, (), 1_000), 0
    while (cut := cutter.next()) is not None:
        cutter.record(cut, 0)
        count += 1
    assert count < 10


def test_a_range_ends_where_owners_change_if_it_can() -> None:
    """A range ends at the last change of owner that its size allows, if there is such a change."""
    size = WHOLE_RING.size // 4_096
    ends = [MIN_TOKEN + size // 3, MIN_TOKEN + size // 2, MIN_TOKEN + 3 * size]
    cutter = RangeCutter(WHOLE_RING, ends, 1_000)
    first, second = cutter.next(), cutter.next()
    assert first == TokenRange(MIN_TOKEN, ends[1])
    assert second is not None
    assert second.start == ends[1]
    assert ends[1] < second.end < ends[2]
