"""Micro-batches are merged into a target exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc_reader._time import SystemClock
from cdc_reader.errors import CheckpointError
from pyspark_scylla_cdc.tables.delta import DeltaLakeSink
from pyspark_scylla_cdc.tables.layout import layout_of
from pyspark_scylla_cdc.tables.sink import MicroBatch
from pyspark_scylla_cdc.tables.update import update
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import (
    CHANGES,
    IMAGES,
    TABLE,
    format_ms,
    random_statements,
    rows_of,
    table_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]


def check_merged(
    folder: Path, batches: Sequence[tuple[DataFrame, Sequence[dict[str, Any]]]]
) -> None:
    """Merge micro-batches. Each comes with the rows that the target must have afterwards."""
    sink = DeltaLakeSink(str(folder))
    layout = sink.prepare(layout_of(batches[0][0]))
    for number, (changes, rows) in enumerate(batches):
        for _ in range(2):  # the second time after a crash
            update(sink, layout, changes, MicroBatch("query", number, plan=7))
            assert rows_of(sink.rows(changes.sparkSession).drop(layout.state)) == rows
    with pytest.raises(CheckpointError, match="micro-batch 0 of an older checkpoint"):
        update(sink, layout, batches[0][0], MicroBatch("query", 0, plan=8))


def test_rows_that_lose_their_last_value(
    scylla: Scylla, keyspace: str, execute: Execute, load: Load, tmp_path: Path
) -> None:
    """Only a row that an INSERT created remains, in whichever micro-batches it is written."""
    execute("CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    batches, start = [], 0
    for statements in (
        ["UPDATE {t} SET v = 1 WHERE pk = 1", "INSERT INTO {t} (pk, v) VALUES (2, 1)"],
        ["UPDATE {t} SET v = 2 WHERE pk = 1", "UPDATE {t} SET v = 2 WHERE pk = 2"],
        ["UPDATE {t} SET v = null WHERE pk = 1", "UPDATE {t} SET v = null WHERE pk = 2"],
        ["UPDATE {t} SET v = 3 WHERE pk = 1", "DELETE FROM {t} WHERE pk = 2"],
        ["UPDATE {t} SET v = 3 WHERE pk = 2", "INSERT INTO {t} (pk) VALUES (1)"],
        ["UPDATE {t} SET v = null WHERE pk = 1", "UPDATE {t} SET v = null WHERE pk = 2"],
    ):
        execute(*statements)
        rows, end = table_of(scylla, f"{keyspace}.t"), SystemClock().now() + 1_000
        bounds = {"startingTimestamp": format_ms(start), "endingTimestamp": format_ms(end)}
        batches.append((load(**CHANGES, **bounds).localCheckpoint(), rows))
        start = end
    check_merged(tmp_path / "copy", batches)
    assert [len(rows) for _, rows in batches] == [2, 2, 1, 1, 2, 1]


@pytest.mark.slow
def test_random_statements(
    scylla: Scylla, keyspace: str, execute: Execute, load: Load, tmp_path: Path
) -> None:
    """A target equals the table after each micro-batch, and rejects an older checkpoint."""
    execute(TABLE + IMAGES["full images"])
    batches, start = [], 0
    for seed in (1, 2):
        execute(*[text for text in random_statements(seed, 40) if "TIMESTAMP" not in text])
        rows, end = table_of(scylla, f"{keyspace}.t"), SystemClock().now() + 1_000
        bounds = {"startingTimestamp": format_ms(start), "endingTimestamp": format_ms(end)}
        batches.append((load(**CHANGES, **bounds).localCheckpoint(), rows))
        start = end
    check_merged(tmp_path / "copy", batches)
