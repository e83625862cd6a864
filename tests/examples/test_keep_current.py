"""The example that keeps a copy of a table current."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "keep_current.py"


@pytest.mark.slow
@pytest.mark.spark
def test_the_copy_equals_the_table() -> None:
    """The copy contains rows, and equals the table in each round."""
    ran = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False, timeout=240
    )
    assert ran.returncode == 0, ran.stderr
    rounds = re.findall(r"round \d: the copy, (\d+) rows, equals the table", ran.stdout)
    assert len(rounds) == 3, ran.stdout
    assert all(int(count) > 5 for count in rounds)
