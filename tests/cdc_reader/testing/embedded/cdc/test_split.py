"""Tests that a mutation is split into records without loss, with one timestamp per record."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.types import MapType, Native
from cdc_reader.testing.embedded.cdc.split import records
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
        Column("m", MapType(INT, INT)),
        Column("v1", INT),
        Column("v2", INT),
        Column("s", INT, Kind.STATIC),
    ),
)


def value(number: int) -> bytes:
    """Serialize an int."""
    return number.to_bytes(4, "big")


def cells(timestamp: int, ttl: int) -> st.SearchStrategy[Cell]:
    """Return a strategy for live and dead cells."""
    live = st.integers(0, 3).map(lambda v: Cell(timestamp, value(v), ttl, 1000 + ttl))
    return st.one_of(live, st.just(Cell(timestamp, None)))


@st.composite
def batches(draw: st.DrawFn) -> Partition:
    """Draw the mutation that a batch of up to five statements applies to one partition."""
    mutation = Partition(TABLE, (value(0),))
    for _ in range(draw(st.integers(0, 5))):
        timestamp, ttl = draw(st.integers(10, 12)), draw(st.sampled_from([0, 5, 6]))
        row = mutation.row((value(draw(st.integers(0, 2))),))
        match draw(st.integers(0, 7)):
            case 0:
                row.set_marker(Cell(timestamp, b"", ttl))
                row.set_cell("v1", draw(cells(timestamp, ttl)))
            case 1:
                row.set_cell("v2", draw(cells(timestamp, ttl)))
            case 2:
                row.multi_cell("m").deletion = timestamp - 1
            case 3:
                row.multi_cell("m").cells[value(1)] = draw(cells(timestamp, ttl))
            case 4:
                row.delete(timestamp)
            case 5:
                mutation.static.set_cell("s", draw(cells(timestamp, ttl)))
            case 6:
                mutation.delete(timestamp)
            case _:
                mutation.delete_range(
                    RangeTombstone(Bound((), BEFORE), Bound((value(1),), AFTER), timestamp)
                )
    return mutation


@given(batches())
def test_records_come_by_ascending_timestamp_and_are_never_empty(mutation: Partition) -> None:
    """Records have distinct, ascending timestamps, and each record has at least one change."""
    split = records(mutation)
    times = [record.timestamp for record in split]
    assert times == sorted(set(times))
    assert all(record.changes for record in split)
