"""Tests that the order of merging mutations does not matter, because the last write wins."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.types import MapType, Native
from cdc_reader.testing.embedded.schema.table import Column, Kind, Table
from cdc_reader.testing.embedded.storage.cell import Cell
from cdc_reader.testing.embedded.storage.partition import Partition
from cdc_reader.testing.embedded.storage.position import AFTER, BEFORE, Bound
from cdc_reader.testing.embedded.storage.ranges import RangeTombstone

INT = Native("int")
TABLE = Table(
    "ks",
    "t",
    UUID(int=1),
    (
        Column("pk", INT, Kind.PARTITION_KEY, 0),
        Column("ck", INT, Kind.CLUSTERING, 0),
        Column("a", INT),
        Column("m", MapType(INT, INT)),
        Column("s", INT, Kind.STATIC),
    ),
)
NOW = 1_000


def value(number: int) -> bytes:
    """Serialize an int."""
    return number.to_bytes(4, "big")


@st.composite
def mutations(draw: st.DrawFn) -> Partition:
    """Draw a write of any kind to one of three rows, at one of six timestamps."""
    mutation = Partition(TABLE, (value(0),))
    timestamp = draw(st.integers(1, 6))
    ttl = draw(st.sampled_from([0, 0, 10]))
    cell = Cell(timestamp, draw(st.sampled_from([None, value(1), value(2)])))
    if cell.value is not None and ttl:
        cell = Cell(timestamp, cell.value, ttl, NOW + draw(st.sampled_from([-1, 1])))
    row = mutation.row((value(draw(st.integers(0, 2))),))
    match draw(st.integers(0, 6)):
        case 0:
            row.set_marker(Cell(timestamp, b""))
        case 1:
            row.set_cell("a", cell)
        case 2:
            row.multi_cell("m").deletion = timestamp
        case 3:
            row.multi_cell("m").cells[value(draw(st.integers(0, 1)))] = cell
        case 4:
            row.delete(timestamp)
        case 5:
            mutation.static.set_cell("s", cell)
        case _:
            ends = draw(st.integers(0, 2)), draw(st.integers(0, 2))
            mutation.delete_range(
                RangeTombstone(
                    Bound((value(min(ends)),), BEFORE), Bound((value(max(ends)),), AFTER), timestamp
                )
            )
    return mutation


def read(partition: Partition) -> object:
    """Return everything that a reader sees."""
    return list(partition.live_rows(NOW)), partition.live_static(NOW)


@given(st.lists(mutations(), max_size=6), st.randoms(use_true_random=False))
def test_merging_is_order_free(writes: list[Partition], random: st.DataObject) -> None:
    """The same mutations in any order yield the same contents."""
    shuffled = list(writes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    left, right = Partition(TABLE, (value(0),)), Partition(TABLE, (value(0),))
    for mutation, other in zip(writes, shuffled, strict=True):
        left.merge(mutation)
        right.merge(other)
    assert read(left) == read(right)


@given(st.lists(mutations(), max_size=6))
def test_merging_twice_changes_nothing(writes: list[Partition]) -> None:
    """Merging a mutation again has no effect."""
    once, twice = Partition(TABLE, (value(0),)), Partition(TABLE, (value(0),))
    for mutation in writes:
        once.merge(mutation)
    for mutation in (*writes, *writes):
        twice.merge(mutation)
    assert read(once) == read(twice)


def test_a_mutation_is_not_shared_with_what_it_was_merged_into() -> None:
    """Changing a mutation after it was merged does not change the stored rows."""
    mutation = Partition(TABLE, (value(0),))
    mutation.row((value(1),)).set_cell("a", Cell(1, value(1)))
    stored = Partition(TABLE, (value(0),))
    stored.merge(mutation)
    mutation.row((value(1),)).delete(5)
    assert stored.live_row((value(1),), NOW)


def test_a_range_of_exactly_one_row_is_a_row_deletion() -> None:
    """A range that includes exactly one full key becomes a row deletion."""
    mutation = Partition(TABLE, (value(0),))
    mutation.delete_range(RangeTombstone(Bound((value(1),), BEFORE), Bound((value(1),), AFTER), 9))
    assert not len(mutation.ranges)
    assert mutation.row((value(1),)).deletion == 9
