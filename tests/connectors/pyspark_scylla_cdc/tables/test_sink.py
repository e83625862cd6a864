"""Micro-batches are merged into a target exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc_reader._time import SystemClock
from cdc_reader.errors import CheckpointError
from pyspark_scylla_cdc.tables.delta import DeltaLakeSink
from pyspark_scylla_cdc.tables.mirror import layout_of, update
from pyspark_scylla_cdc.tables.sink import MicroBatch
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

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("one_job_a_fold")]

Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]


def check_merged(
    folder: Path, batches: Sequence[tuple[DataFrame, Sequence[dict[str, Any]]]]
) -> None:
    """Merge micro-batches. Each comes with the rows that the target must have afterwards."""
    sink, layout = DeltaLakeSink(str(folder)), layout_of(batches[0][0])
    sink.prepare(layout)
    for number, (changes, rows) in enumerate(batches):
        for _ in range(2):  # the second time after a crash
            update(sink, layout, changes, MicroBatch("query", number, plan=7))
            assert rows_of(sink.rows(changes.sparkSession)) == rows
    with pytest.raises(CheckpointError, match="micro-batch 0 of an older checkpoint"):
        update(sink, layout, batches[0][0], MicroBatch("query", 0, plan=8))


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
        batches.append((load(**CHANGES, includeDelta="true", **bounds).localCheckpoint(), rows))
        start = end
    check_merged(tmp_path / "copy", batches)
