"""The example that keeps a Delta table current."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_scylla_cdc.spark_versions import TELLS_START

SCRIPT = Path(__file__).parents[2] / "examples" / "keep_delta_current.py"
ROUNDS = ["at first", "after a node joined", "after a crash"]


@pytest.mark.slow
@pytest.mark.spark
def test_the_delta_table_equals_the_table() -> None:
    """Each round's micro-batch creates a version of the table.

    The last round repeats the previous micro-batch, which creates no version; Spark 4.2 and later
    then run another one. The number of micro-batches in the first round depends on Spark too.
    """
    ran = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False, timeout=280
    )
    assert ran.returncode == 0, ran.stderr
    line = r"^(.*): version (\d), (\d+) rows, equals the table$"
    found = re.findall(line, ran.stdout, re.MULTILINE)
    assert [what for what, _, _ in found] == ROUNDS, ran.stdout
    first, *later = [int(version) for _, version, _ in found]
    assert first >= 1
    assert later == [first + 1, first + 2 if TELLS_START else first + 1]
    assert all(int(count) > 5 for _, _, count in found)
