"""Prints constraints.txt with the oldest versions of what users install.

Each dependency that pyproject.toml names, extras included, is pinned to the lower end of its range;
the development tools and what comes with other packages stay as they are.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def lower_bounds(lines: Iterable[str]) -> dict[str, str]:
    """Return the oldest allowed version of each dependency that has one, by its normalized name."""
    return {
        canonicalize_name(requirement.name): bound.version
        for requirement in map(Requirement, lines)
        for bound in requirement.specifier
        if bound.operator == ">="
    }


def oldest(constraints: str, bounds: Mapping[str, str]) -> Iterator[str]:
    """Return the lines of `constraints`, with these versions where they are given."""
    for line in constraints.splitlines():
        name, _, version = line.partition("==")
        yield f"{name}=={bounds.get(canonicalize_name(name), version)}"


def main() -> None:
    """Print the constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = chain(project["dependencies"], *project["optional-dependencies"].values())
    constraints = (ROOT / "constraints.txt").read_text()
    sys.stdout.writelines(f"{line}\n" for line in oldest(constraints, lower_bounds(lines)))


if __name__ == "__main__":
    main()
