"""`CdcReader.change_batches` returns the same rows as the Spark source."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc_reader import CdcReader, ChangeFormat
from cdc_reader._time import SystemClock, format_timestamp
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import IMAGES, TABLE, random_statements

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

Rows = Callable[..., list[dict[str, Any]]]
Execute = Callable[..., None]
WAYS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "log": ({"format": "log"}, {"name": "log"}),
    "changes": ({"format": "changes", "rangeDeletes": "skip"}, {"range_deletes": "skip"}),
    "with deltas": (
        {"format": "changes", "rangeDeletes": "emit", "includeDelta": "true", "columns": "v"},
        {"range_deletes": "emit", "include_delta": True, "columns": ["v"]},
    ),
    "envelope": (
        {"format": "envelope", "rangeDeletes": "skip", "preimages": "none"},
        {"name": "envelope", "range_deletes": "skip", "preimages": "none"},
    ),
}


@pytest.mark.parametrize("images", IMAGES.values(), ids=list(IMAGES))
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9), count=st.integers(0, 12), way=st.sampled_from(list(WAYS)))
def test_python_and_spark_give_the_same_rows(
    scylla: Scylla,
    keyspace: str,
    execute: Execute,
    rows: Rows,
    images: str,
    seed: int,
    count: int,
    way: str,
) -> None:
    """After random statements, Python and Spark return equal rows, cell by cell."""
    execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS") + images)
    before = SystemClock().now()
    execute(*random_statements(seed, count, before))
    options, keywords = WAYS[way]
    with CdcReader(scylla.contact_point, f"{keyspace}.t") as reader:
        table = reader.change_batches(before, format=ChangeFormat(**keywords)).read_all()
    in_spark = rows(**options, startingTimestamp=format_timestamp(before))
    assert unordered(table) == in_order(in_spark)


def unordered(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table in a fixed order, with maps as dicts."""
    return in_order(table.to_pylist(maps_as_pydicts="strict"))


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows in a fixed order, without the times of the read."""
    kept = [{name: row[name] for name in row if not name.startswith("ts_")} for row in rows]
    return sorted(kept, key=repr)
