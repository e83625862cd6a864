"""The reprs of public objects are useful and contain no secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_reader import (
    AsyncCdcConsumer,
    AsyncChanges,
    CdcConsumer,
    CdcReader,
    ConnectionConfig,
    MemoryCheckpoints,
    ScyllaCheckpoints,
    SqliteCheckpoints,
)
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cql.names import TableName
from cdc_reader.metrics import LAG, ROWS, MemoryMetrics
from cdc_reader.reading.cursor import Checkpoint

WAY = ConnectionConfig("one,[::1]:9043", username="me", password="s3cret")
TABLE = TableName("shop", "orders")


def nothing(_change: object) -> None:
    """A handler that is never called."""
    raise AssertionError


async def nothing_soon(_change: object) -> None:
    """A coroutine handler that is never called."""
    raise AssertionError


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (CdcReader(WAY, "shop.orders", "a.b"), "<CdcReader shop.orders, a.b at {hosts}>"),
        (CdcReader(WAY, "shop.orders").table, "<TableReader shop.orders at {hosts}>"),
        (
            CdcConsumer(WAY, ["shop.orders"], nothing, application="app", shard="1/2"),
            "<CdcConsumer 'app' of shop.orders at {hosts}, shard 1/2>",
        ),
        (
            AsyncCdcConsumer(WAY, "shop.orders", nothing_soon, application="app"),
            "<AsyncCdcConsumer 'app' of shop.orders at {hosts}>",
        ),
        (
            AsyncChanges(WAY, "shop.orders", application="app"),
            "<AsyncChanges 'app' of shop.orders at {hosts}>",
        ),
        (SqliteCheckpoints(Path("my.db")), "<SqliteCheckpoints my.db>"),
        (ScyllaCheckpoints(WAY, "kept"), "<ScyllaCheckpoints kept.cdc_checkpoints at {hosts}>"),
        (MemoryCheckpoints(), "<MemoryCheckpoints of 0 checkpoints>"),
        (MemoryMetrics(), "<MemoryMetrics empty>"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_reprs_name_the_table_and_hosts(made: object, shown: str) -> None:
    """Each repr is one line with the table and hosts, and needs neither a query nor a file."""
    assert repr(made) == shown.format(hosts="one:9042, [::1]:9043")


def test_reprs_show_metrics_and_checkpoints() -> None:
    """The repr of metrics shows their values, and the repr of checkpoints shows their number."""
    metrics = MemoryMetrics()
    metrics.add(ROWS, TABLE, 3)
    metrics.set(LAG, TABLE, 1.5)
    assert repr(metrics) == "<MemoryMetrics shop.orders lag_seconds=1.5, shop.orders rows=3>"
    kept = MemoryCheckpoints()
    kept.save(CheckpointName("app", TABLE), Checkpoint(1))
    assert repr(kept) == "<MemoryCheckpoints of 1 checkpoints>"
