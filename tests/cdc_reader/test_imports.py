"""Modules are imported only when they are used, so that programs start quickly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cdc_reader.config import ConnectionConfig
    from cdc_reader.testing import Scylla

CHANGES = """
import sys
from cdc_reader import CdcReader, ConnectionConfig
with CdcReader(ConnectionConfig(sys.argv[1]), sys.argv[2]) as reader:
    assert [change.key["c"] for change in reader.changes(end="now")] == [0.5, 1.5]
print(*sys.modules)
"""
CONSUMER = """
import sys
from cdc_reader import CdcConsumer, ConnectionConfig, MemoryCheckpoints, ReadConfig
found = []
def handle(change):
    found.append(change.key["c"])
    if len(found) == 2:
        consumer.stop()
consumer = CdcConsumer(
    ConnectionConfig(sys.argv[1]),
    sys.argv[2],
    handle,
    application="imports",
    checkpoints=MemoryCheckpoints(),
    read=ReadConfig(delivery=sys.argv[3], confidence_window="0s"),
)
consumer.run()
assert found == [0.5, 1.5]
print(*sys.modules)
"""
UNUSED = {"pandas", "pyspark", "rich", "structlog", "cdc_reader.changes.frames"}


@pytest.mark.parametrize(
    "program",
    [
        pytest.param([CHANGES], id="changes"),
        pytest.param([CONSUMER, "eager"], id="eager consumer"),
    ],
)
def test_reading_imports_neither_formats_nor_pandas(
    scylla: Scylla, connection: ConnectionConfig, keyspace: str, program: Sequence[str]
) -> None:
    """Reading batches or changes imports neither pandas nor the modules for change formats.

    If pandas is installed, Arrow imports it as soon as it converts a Python value or a numpy array.
    The thread that reads would then wait for the import before it delivers a process's first rows.
    """
    table = f"{keyspace}.t"
    scylla.session.execute(
        f"CREATE TABLE {table} (p int, c double, v text, PRIMARY KEY (p, c)) "
        "WITH cdc = {'enabled': true, 'preimage': true}"
    )
    for c in (0.5, 1.5):
        scylla.session.execute(f"INSERT INTO {table} (p, c, v) VALUES (1, {c}, 'x')")
    source, *arguments = program
    ran = subprocess.run(
        [sys.executable, "-c", source, connection.hosts, table, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "cdc_reader.table_reader" in (imported := set(ran.stdout.split()))
    assert not imported & UNUSED
