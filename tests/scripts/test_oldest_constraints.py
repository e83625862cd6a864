from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.oldest_constraints import lower_bounds, oldest

ROOT = Path(__file__).parents[2]


def test_the_lower_end_of_a_range_is_pinned() -> None:
    """A dependency without a lower end is left out."""
    lines = ["Py_Thing[extra]>=2.4,<3", "other<3", "exact==1.2"]
    assert lower_bounds(lines) == {"py-thing": "2.4"}


def test_other_packages_keep_their_versions() -> None:
    """The spelling of their names does not matter."""
    assert list(oldest("a==3.1\npy.thing==2.9\n", {"py-thing": "2.4"})) == [
        "a==3.1",
        "py.thing==2.4",
    ]


def test_each_dependency_of_the_project_is_pinned_to_its_oldest_version() -> None:
    """No line is added or missing, and only those of the project's dependencies differ."""
    printed = subprocess.run(
        [sys.executable, "-m", "scripts.oldest_constraints"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    tested = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line.partition("==")[0] for line in printed] == [
        line.partition("==")[0] for line in tested
    ]
    assert "pyspark==4.0" in printed
    assert "attrs==24.2" in printed
