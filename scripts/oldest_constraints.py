"""Writes constraints with the oldest supported versions of the dependencies.

Each dependency that pyproject.toml names, extras included, is pinned to its lower bound. All other
packages stay unconstrained, because old versions of the dependencies may need old versions of other
packages.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def lower_bounds(lines: Iterable[str]) -> Iterator[str]:
    """Yield each dependency that has a lower bound, pinned to that bound."""
    for requirement in map(Requirement, lines):
        for bound in requirement.specifier:
            if bound.operator == ">=":
                yield f"{requirement.name}=={bound.version}"


def main(target: Path) -> None:
    """Write the constraints. Leave a file that already contains them untouched."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = chain(project["dependencies"], *project["optional-dependencies"].values())
    text = "".join(f"{pin}\n" for pin in lower_bounds(lines))
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
