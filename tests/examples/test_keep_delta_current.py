"""The example that keeps a Delta table current."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "keep_delta_current.py"
ROUNDS = ["at first", "after a node joined", "after a crash"]


@pytest.mark.slow
@pytest.mark.spark
def test_the_delta_table_equals_the_table() -> None:
    """It does after each round: two micro-batches, one, and one that comes again before another.

    Each makes a version of the table, the one that comes again none.
    """
    ran = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False, timeout=280
    )
    assert ran.returncode == 0, ran.stderr
    line = r"^(.*): version (\d), (\d+) rows, equals the table$"
    found = re.findall(line, ran.stdout, re.MULTILINE)
    assert [what for what, _, _ in found] == ROUNDS, ran.stdout
    assert [version for _, version, _ in found] == ["2", "3", "4"]
    assert all(int(count) > 5 for _, _, count in found)
