"""Type checkers find the mistakes of users. `make lint` checks a program without mistakes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
CHECKERS = {
    "mypy": ("-m", "mypy", "--strict"),
    "pyright": ("-m", "basedpyright"),
}
LINE = re.compile(r"mistakes\.py:(\d+)")


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_mistakes_are_found(checker: str) -> None:
    """Each mistake is found, and nothing else is reported."""
    mistakes = HERE / "mistakes.py"
    command = [sys.executable, *CHECKERS[checker], str(mistakes)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    lines = mistakes.read_text().splitlines()
    expected = [number for number, line in enumerate(lines, 1) if line.endswith("# wrong")]
    assert sorted({int(number) for number in LINE.findall(said)}) == expected, said
