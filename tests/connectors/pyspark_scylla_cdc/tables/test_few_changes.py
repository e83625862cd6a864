"""Small micro-batches are folded in this process, and larger ones do not get into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from pyspark_scylla_cdc.tables import row_updates as module
from pyspark_scylla_cdc.tables.layout import Layout, layout_of
from pyspark_scylla_cdc.tables.row_updates import FewChanges, row_updates
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import CHANGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]
WRITES = 6


@pytest.fixture
def changes(execute: Execute, load: Load) -> DataFrame:
    """A change of each of six rows, and a delete."""
    execute(
        "CREATE TABLE {t} (pk int, ck int, m map<text, timestamp>, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'postimage': true}",
        *(
            f"INSERT INTO {{t}} (pk, ck, m) VALUES ({n % 3}, {n}, {{'a': {n}}})"
            for n in range(WRITES)
        ),
        "DELETE FROM {t} WHERE pk = 9 AND ck = 4",
    )
    return load(**CHANGES).localCheckpoint()


def layout(changes: DataFrame) -> Layout:
    """Return a layout with several buckets."""
    return evolve(layout_of(changes).with_own_columns(), buckets=5)


def test_few_are_folded_as_on_the_executors(changes: DataFrame) -> None:
    """The updates are the same, with the same buckets."""
    few = FewChanges(WRITES + 1).row_updates(changes, layout(changes))
    many = row_updates(changes, layout(changes))
    assert few is not None
    assert in_order(few) == in_order(many.toArrow())
    assert few.column_names == many.columns


def test_a_large_micro_batch_is_left_out(changes: DataFrame) -> None:
    """After one with too many changes, others are folded on the executors for a while."""
    few = FewChanges(WRITES)
    assert few.row_updates(changes, layout(changes)) is None
    small = changes.where("pk = 1")
    found = [few.row_updates(small, layout(small)) is None for _ in range(module._LEFT_OUT + 1)]
    assert found == [True] * module._LEFT_OUT + [False]


@pytest.mark.parametrize(("size", "is_small"), [(100, False), (1 << 20, True)])
def test_large_values_are_left_out(changes: DataFrame, size: int, *, is_small: bool) -> None:
    """A few changes with large values do not get into this process either."""
    found = FewChanges(WRITES + 1, size).row_updates(changes, layout(changes))
    assert (found is not None) == is_small


def in_order(updates: Any) -> list[dict[str, Any]]:
    """Return the updates as rows, sorted."""
    return sorted(updates.to_pylist(), key=repr)
