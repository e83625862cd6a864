"""The Python environment of a cluster's machines: the wheel and its dependencies, without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.packaging.conftest import Environment, make_environment

BESIDE = ("pandas", "click", "rich", "deltalake")
"""Packages for Spark's Python data sources, for the command `doctor`, and for Delta tables."""


def executor_environment(folder: Path, wheel: Path) -> Environment:
    """Create an environment as on a cluster's machines, where Spark is installed separately.

    It contains the wheel, and copies of the wheel's dependencies from the environment of the tests.
    """
    made = make_environment(folder)
    made.install(wheel)
    [site_packages] = folder.glob("lib/python*/site-packages")
    for name in _closure(("scylla-cdc", *BESIDE), {"scylla-cdc"}):
        _copy(metadata.distribution(name), site_packages)
    return made


def _closure(names: Iterable[str], left_out: set[str]) -> Iterator[str]:
    """Yield the names of the distributions and their dependencies, except names in `left_out`."""
    wanted, seen = list(names), set[str]()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        if name not in left_out:
            yield name
        needed = map(Requirement, metadata.requires(name) or ())
        wanted += [
            one.name for one in needed if not one.marker or one.marker.evaluate({"extra": ""})
        ]


def _copy(distribution: metadata.Distribution, folder: Path) -> None:
    """Copy the files of an installed distribution into a site-packages directory."""
    for file in distribution.files or ():
        path = folder / file
        if ".." not in file.parts and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path(str(file.locate())), path)
