"""The recordings detect defects of the write path. Each test breaks the server in one way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from attrs import evolve
from cassandra.cluster import Session

from cdc_reader.cql.schema import DELETED_PREFIX, Operation
from cdc_reader.testing.embedded.cdc import delta, split, write_path
from cdc_reader.testing.embedded.cdc.change import Record, RowKey
from cdc_reader.testing.embedded.cdc.delta import LogRow
from cdc_reader.testing.embedded.cdc.image import ImageState
from cdc_reader.testing.embedded.storage import row
from cdc_reader.testing.embedded.storage.cell import Cell, MultiCell
from cdc_reader.testing.embedded.storage.ranges import RangeTombstone
from tests.cdc_reader.testing.embedded import test_recorded
from tests.mutations import Mutation
from tests.recordings.replay import Timestamps

_VERSION = "5.2"

session = test_recorded.session
timestamps = test_recorded.timestamps


@pytest.fixture(scope="module")
def version() -> str:
    """The version of the server."""
    return _VERSION


def _without_ttl(cell: Cell) -> tuple[int, int]:
    return cell.timestamp, 0


def _as_addition(cells: dict[str, bytes], table: Any, name: str, value: MultiCell) -> None:
    _COLLECTION(cells, table, name, value)
    cells.pop(DELETED_PREFIX + name, None)


def _inclusive(tombstone: RangeTombstone) -> Iterator[LogRow]:
    start, end = _RANGE(tombstone)
    yield evolve(start, operation=Operation.RANGE_START_INCLUSIVE)
    yield end


def _whole(self: ImageState, operation: Operation, key: RowKey, _touched: Any) -> Iterator[LogRow]:
    return _IMAGE(self, operation, key, None)


def _of_rows(self: Record, all_columns: set[str]) -> dict[RowKey, set[str]]:
    touched = _TOUCHED(self, all_columns)
    return {key: columns for key, columns in touched.items() if key is not None}


def _images_first(*values: Any) -> Iterator[LogRow]:
    images = Operation.PREIMAGE, Operation.POSTIMAGE
    yield from sorted(_ROWS(*values), key=lambda row: row.operation not in images)


def _covers_earlier(deletion: int | None, timestamp: int) -> bool:
    return deletion is not None and timestamp < deletion


_COLLECTION = delta._collection
_RANGE = delta._range
_IMAGE = ImageState._image
_TOUCHED = Record.touched
_ROWS = write_path._rows

MUTATIONS: dict[str, tuple[str, Mutation]] = {
    "ttl: writes with different TTLs share a record": (
        ("ttl", Mutation(split, "_stamp", _without_ttl))
    ),
    "collections: one that is overwritten looks like an addition": (
        ("map_plain", Mutation(delta, "_collection", _as_addition))
    ),
    "collections: the tombstone is logged a microsecond before the elements": (
        ("list_both", Mutation(split, "collection_time", lambda deletion: deletion))
    ),
    "range deletes: an exclusive start is logged as inclusive": (
        ("range_delete_plain", Mutation(delta, "_range", _inclusive))
    ),
    "preimages: columns that the write left alone are shown": (
        ("basic_preimage", Mutation(ImageState, "_image", _whole))
    ),
    "images: static rows have none": ("basic_both", Mutation(Record, "touched", _of_rows)),
    "batch_seq_no: postimages are numbered before the deltas": (
        ("basic_postimage", Mutation(write_path, "_rows", _images_first))
    ),
    "storage: a delete leaves what was written in the same microsecond": (
        ("batch_both", Mutation(row, "covers", _covers_earlier))
    ),
}
"""The recorded scenario that detects the defect, and the defect."""


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_recording_finds_what_is_broken(
    mutation: str, session: Session, timestamps: Timestamps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorded scenario repeats, but not with the defect."""
    name, broken = MUTATIONS[mutation]
    [(keyspace, scenario)] = [
        (keyspace, scenario)
        for version, keyspace, scenario in (each.values for each in test_recorded.scenarios())
        if version == _VERSION and scenario["name"] == name
    ]
    repeats = partial(
        test_recorded.test_a_recorded_scenario_repeats, session, timestamps, keyspace, scenario
    )
    repeats()
    broken.check_found(repeats, monkeypatch)
