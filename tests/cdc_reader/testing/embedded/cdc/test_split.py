"""Tests that a mutation is split into records without loss, with one timestamp per record."""

from collections.abc import Iterator
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.types import MapType, Native
from cdc_reader.testing.embedded.cdc.change import (
    Change,
    PartitionDelete,
    RangeDelete,
    RowDelete,
    RowWrite,
)
from cdc_reader.testing.embedded.cdc.split import records
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


def facts_of_mutation(mutation: Partition) -> Iterator[tuple[object, ...]]:
    """Yield each individual write in a mutation, with the time at which the log shows it."""
    if mutation.deletion is not None:
        yield "partition", mutation.deletion
    for tombstone in mutation.ranges:
        yield "range", tombstone.start, tombstone.end, tombstone.timestamp
    for key, row in [(None, mutation.static), *((r.key, r) for r in mutation.rows.values())]:
        if row.deletion is not None:
            yield "row", key, row.deletion
        if row.marker is not None:
            yield "marker", key, row.marker.timestamp
        yield from facts_of_cells(key, row.cells)


def facts_of_cells(
    key: tuple[bytes, ...] | None, written: dict[str, Cell | MultiCell]
) -> Iterator[tuple[object, ...]]:
    """Yield each individual write in the cells of a row, with its time."""
    for name, cell in written.items():
        if isinstance(cell, Cell):
            yield "cell", key, name, cell.timestamp, cell.value
            continue
        if cell.deletion is not None:
            yield "collection", key, name, cell.deletion + 1
        for element, part in cell.cells.items():
            yield "element", key, name, element, part.timestamp, part.value


def facts_of_change(change: Change, timestamp: int) -> Iterator[tuple[object, ...]]:
    """Yield each individual write in a change, with the record's timestamp."""
    match change:
        case RowWrite(key, marker, written):
            if marker is not None:
                yield "marker", key, timestamp
            yield from facts_of_cells(key, written)
        case RowDelete(key):
            yield "row", key, timestamp
        case RangeDelete(tombstone):
            yield "range", tombstone.start, tombstone.end, timestamp
        case PartitionDelete():
            yield "partition", timestamp


@given(batches())
def test_records_hold_exactly_the_mutation(mutation: Partition) -> None:
    """No cell, marker or tombstone is lost, duplicated, or shown with another timestamp."""
    told = [
        fact
        for record in records(mutation)
        for change in record.changes
        for fact in facts_of_change(change, record.timestamp)
    ]
    assert sorted(map(repr, told)) == sorted(map(repr, facts_of_mutation(mutation)))


@given(batches())
def test_records_come_by_ascending_timestamp_and_are_never_empty(mutation: Partition) -> None:
    """Records have distinct, ascending timestamps, and each record has at least one change."""
    split = records(mutation)
    times = [record.timestamp for record in split]
    assert times == sorted(set(times))
    assert all(record.changes for record in split)


@given(batches())
def test_a_delta_row_has_one_ttl(mutation: Partition) -> None:
    """All live cells of a delta row have the row's TTL. A row with dead cells has no TTL."""
    for record in records(mutation):
        for change in record.changes:
            if isinstance(change, RowWrite):
                atoms = [c for c in change.cells.values() if isinstance(c, Cell)]
                atoms += [
                    part
                    for c in change.cells.values()
                    if isinstance(c, MultiCell)
                    for part in c.cells.values()
                ]
                assert {c.ttl if c.value is not None else 0 for c in atoms} <= {change.ttl}


def test_two_inserts_of_a_row_at_different_times_are_an_update_and_an_insert() -> None:
    """Two merged inserts keep only the later marker, so the earlier insert becomes an update."""
    mutation = Partition(TABLE, (value(0),))
    row = mutation.row((value(0),))
    row.set_marker(Cell(3, b""))
    row.set_cell("v1", Cell(3, value(1)))
    row.set_marker(Cell(4, b""))
    row.set_cell("v2", Cell(4, value(2)))
    [first, second] = records(mutation)
    assert [c.marker for c in first.changes if isinstance(c, RowWrite)] == [None]
    assert [c.marker for c in second.changes if isinstance(c, RowWrite)] == [Cell(4, b"")]
