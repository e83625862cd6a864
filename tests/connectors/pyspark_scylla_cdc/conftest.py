"""One real Spark for all tests of the source, and the options that lead it to the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pyspark_scylla_cdc.local_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two cores, started once; its log is kept for the run."""
    folder = tmp_path_factory.mktemp("spark")
    session = local_session(
        "tests",
        folder / "spark.log",
        **{"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.driver.memory": "600m"},
    )
    yield session
    session.stop()
