"""Tests that range tombstones stay disjoint, and that the latest deletion wins."""

from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.types import Native
from cdc_reader.testing.embedded.codec.order import sort_key
from cdc_reader.testing.embedded.storage.position import AFTER, BEFORE, Bound, position
from cdc_reader.testing.embedded.storage.ranges import RangeTombstone, RangeTombstones

SORT_KEYS = (sort_key(Native("int")), sort_key(Native("int")))


def value(number: int) -> bytes:
    """Serialize an int."""
    return number.to_bytes(4, "big", signed=True)


prefixes = st.lists(st.integers(-3, 3).map(value), max_size=2).map(tuple)
bounds = st.builds(Bound, prefixes, st.sampled_from([BEFORE, AFTER]))
tombstones = st.builds(RangeTombstone, bounds, bounds, st.integers(1, 5))
keys = st.tuples(st.integers(-3, 3).map(value), st.integers(-3, 3).map(value))


def covers(tombstone: RangeTombstone, key: tuple[bytes, ...]) -> bool:
    """Return True if the row is in the range."""
    start, end = tombstone.start.position(SORT_KEYS), tombstone.end.position(SORT_KEYS)
    return start < position(SORT_KEYS, key) < end


@given(st.lists(tombstones, max_size=6), keys)
def test_a_row_is_deleted_at_the_latest_range_that_covers_it(
    added: list[RangeTombstone], key: tuple[bytes, ...]
) -> None:
    """A row's deletion time is the latest timestamp of all ranges that contain it."""
    ranges = RangeTombstones(SORT_KEYS)
    for tombstone in added:
        ranges.add(tombstone)
    expected = max((t.timestamp for t in added if covers(t, key)), default=None)
    assert ranges.deletion_at(position(SORT_KEYS, key)) == expected


@given(st.permutations(range(4)), st.lists(tombstones, min_size=4, max_size=4))
def test_the_order_of_adding_does_not_matter(order: list[int], added: list[RangeTombstone]) -> None:
    """Ranges added in any order yield the same disjoint ranges in clustering order."""
    left, right = RangeTombstones(SORT_KEYS), RangeTombstones(SORT_KEYS)
    for i, j in enumerate(order):
        left.add(added[i])
        right.add(added[j])
    assert left.ranges == right.ranges
    ends = [b.position(SORT_KEYS) for r in left for b in (r.start, r.end)]
    assert ends == sorted(ends)


def test_touching_ranges_of_one_time_are_one() -> None:
    """The ranges [1, 2] and (2, 3] with the same timestamp are merged."""
    one, two, three = ((value(n),) for n in (1, 2, 3))
    first = RangeTombstone(Bound(one, BEFORE), Bound(two, AFTER), 7)
    second = RangeTombstone(Bound(two, AFTER), Bound(three, AFTER), 7)
    ranges = RangeTombstones(SORT_KEYS)
    ranges.add(first)
    ranges.add(second)
    assert list(ranges) == [RangeTombstone(Bound(one, BEFORE), Bound(three, AFTER), 7)]
