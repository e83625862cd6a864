from __future__ import annotations

import os
from pathlib import Path

from scripts.oldest_constraints import lower_bounds, main


def test_the_lower_end_of_a_range_is_pinned() -> None:
    """Dependencies are pinned to their lower bounds, or left out if they have none."""
    lines = ["Py_Thing[extra]>=2.4,<3", "other<3", "exact==1.2"]
    assert list(lower_bounds(lines)) == ["Py_Thing==2.4"]


def test_the_dependencies_of_the_project_are_pinned_to_their_oldest_versions(
    tmp_path: Path,
) -> None:
    """The project's dependencies are pinned, including those with extras and upper bounds."""
    target = tmp_path / "constraints.txt"
    main(target)
    written = target.read_text().splitlines()
    assert {"attrs==24.2", "pyspark==4.0.0", "lark==1.2.2", "sortedcontainers==2.4"} <= {*written}


def test_a_file_that_is_up_to_date_is_left_alone(tmp_path: Path) -> None:
    """A file that is up to date is not rewritten, so that `make` does not reinstall everything."""
    target = tmp_path / "constraints.txt"
    main(target)
    os.utime(target, (1, 1))
    main(target)
    assert target.stat().st_mtime == 1
