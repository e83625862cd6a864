"""One cluster for all tests; its machines have the wheel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.environment import executor_environment
from tests.cluster.machine import best_isolation
from tests.cluster.standalone import Standalone, standalone
from tests.packaging.conftest import wheel

__all__ = ["wheel"]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The environment of all machines."""
    return executor_environment(tmp_path_factory.mktemp("packed") / "environment", wheel).folder


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, environment: Path) -> Iterator[Standalone]:
    """A running cluster."""
    folder = tmp_path_factory.mktemp("cluster")
    with standalone(folder, best_isolation(), environment) as cluster:
        yield cluster
