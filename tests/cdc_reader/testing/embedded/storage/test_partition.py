"""Tests what a mutation leaves in a partition."""

from uuid import UUID

from cdc_reader.cql.types import Native
from cdc_reader.testing.embedded.schema.table import Column, Kind, Table
from cdc_reader.testing.embedded.storage.cell import Cell, MultiCell
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
    ),
)
ONE = bytes(3) + b"\1"
NOW = 1_000


def test_a_mutation_is_not_shared_with_what_it_was_merged_into() -> None:
    """Changing a mutation after it was merged does not change the stored rows."""
    mutation, stored = Partition(TABLE, (ONE,)), Partition(TABLE, (ONE,))
    mutation.row((ONE,)).set_cell("a", Cell(1, ONE))
    stored.merge(mutation)
    mutation.row((ONE,)).delete(5)
    assert stored.live_row((ONE,), NOW)


def test_a_range_of_exactly_one_row_is_a_row_deletion() -> None:
    """A range that includes exactly one full key becomes a row deletion."""
    mutation = Partition(TABLE, (ONE,))
    mutation.delete_range(RangeTombstone(Bound((ONE,), BEFORE), Bound((ONE,), AFTER), 9))
    assert not len(mutation.ranges)
    assert mutation.row((ONE,)).deletion == 9


def test_a_collection_tombstone_hides_elements_of_its_microsecond() -> None:
    """Of the elements, only those written after the tombstone are alive."""
    elements = {bytes([at]): Cell(at, ONE) for at in (8, 9, 10)}
    assert set(MultiCell(9, elements).live(None, NOW)) == {b"\x0a"}
