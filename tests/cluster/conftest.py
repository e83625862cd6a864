"""Clusters for all tests, whose machines have the package or lack it.

Each group of tests (`xdist_group`) has its own cluster, so that the groups can run at once.
All groups share the wheel, the environment and the archive of classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.environment import executor_environment
from tests.cluster.log import ROWS, NumberedLog, numbered_log
from tests.cluster.machine import best_isolation
from tests.cluster.standalone import Standalone, standalone
from tests.connectors.pyspark_scylla_cdc.support import available_now
from tests.connectors.pyspark_scylla_cdc.support.followed_query import SCRIPT
from tests.locking import locked
from tests.packaging.conftest import make_environment, wheel

__all__ = ["wheel"]

IMPORTED = (Path(available_now.__file__), SCRIPT)
"""The modules of the tests that programs on a cluster import."""


@pytest.fixture(scope="session")
def environment(shared: Path, wheel: Path) -> Path:
    """A Python environment with the package."""
    folder = shared / "packed" / "environment"
    with locked(folder):
        if not folder.exists():
            executor_environment(folder, wheel)
    return folder


@pytest.fixture(scope="session")
def classes(shared: Path) -> Path:
    """The archive of classes for the JVMs of all clusters."""
    return shared / "classes.jsa"


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, environment: Path, classes: Path
) -> Iterator[Standalone]:
    """A running cluster, whose machines have the package."""
    folder = tmp_path_factory.mktemp("cluster")
    with standalone(folder, best_isolation(), environment, archive=classes) as cluster:
        for module in IMPORTED:
            cluster.copy_module(module)
        yield cluster


@pytest.fixture(scope="session")
def log(cluster: Standalone) -> Iterator[NumberedLog]:
    """The log that applications on the cluster read. Tests add rows to it."""
    with numbered_log(cluster.driver.address, ROWS) as log:
        yield log


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory, classes: Path) -> Iterator[Standalone]:
    """A cluster whose machines have a `python3` without packages."""
    folder = tmp_path_factory.mktemp("bare")
    empty = make_environment(folder / "environment").folder
    with standalone(folder / "cluster", best_isolation(), empty, archive=classes) as cluster:
        yield cluster
