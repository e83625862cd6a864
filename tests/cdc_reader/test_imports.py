"""Modules are imported only when they are used, so that programs start quickly."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc_reader.config import ConnectionConfig
    from cdc_reader.testing import Scylla

READ = """
import sys
from cdc_reader import CdcReader, ConnectionConfig
with CdcReader(ConnectionConfig(sys.argv[1]), sys.argv[2]) as reader:
    assert sum(batch.num_rows for batch in reader.batches(end="now")) == 1
print(*sys.modules)
"""
UNUSED = {"pandas", "pyspark", "rich", "structlog", "cdc_reader.changes.frames"}


def test_reading_batches_imports_neither_formats_nor_pandas(
    scylla: Scylla, connection: ConnectionConfig, keyspace: str
) -> None:
    """Reading batches imports neither the change formats nor pandas.

    If pandas is installed, Arrow imports it as soon as an array is made from a Python list.
    """
    table = f"{keyspace}.t"
    scylla.session.execute(
        f"CREATE TABLE {table} (p int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
    )
    scylla.session.execute(f"INSERT INTO {table} (p) VALUES (1)")
    ran = subprocess.run(
        [sys.executable, "-c", READ, connection.hosts, table],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "cdc_reader.reader" in (imported := set(ran.stdout.split()))
    assert not imported & UNUSED
