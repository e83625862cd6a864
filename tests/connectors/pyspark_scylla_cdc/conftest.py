"""One real Spark session for all tests of the source, and the options to connect to the server."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from cdc_reader.cluster import Connection
from pyspark_scylla_cdc.local_session import local_session
from pyspark_scylla_cdc.options.source_options import SourceOptions
from tests.connectors.pyspark_scylla_cdc.support import lakehouse
from tests.connectors.pyspark_scylla_cdc.support.readers import batch_reader
from tests.quick_spark import INTERPRETED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_reader.testing import Scylla

Rows = Callable[..., list[dict[str, Any]]]
Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session with two cores, started once per test run. It writes its log to a file."""
    folder = tmp_path_factory.mktemp("spark")
    session = local_session(
        "tests",
        folder / "spark.log",
        **{"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.driver.memory": "600m"},
        **INTERPRETED,
        **lakehouse.settings(folder / "lakehouse"),
    )
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def _no_connection_outlives_its_server() -> Iterator[None]:
    """Close the connections that the source keeps open in this process.

    Otherwise the driver keeps trying to reach stopped servers until the tests end. Its random
    waiting times come from Python's global generator, which no other code may use while Hypothesis
    runs a test.
    """
    yield
    for found in gc.get_objects():
        if type(found) is Connection:  # a proxy would access an object that may be gone
            found.close()


@pytest.fixture
def options(scylla: Scylla, keyspace: str) -> dict[str, str]:
    """The options for table `t` of the test's keyspace."""
    login = scylla.credentials or ()
    return {
        "hosts": scylla.contact_point,
        "keyspace": keyspace,
        "table": "t",
        "consistencyLevel": "ONE",
        **dict(zip(("username", "password"), login, strict=False)),
    }


@pytest.fixture
def load(spark: SparkSession, options: dict[str, str]) -> Load:
    """Load table `t` of the test's keyspace as a DataFrame, with additional options."""

    def load(*, stream: bool = False, **more: str) -> DataFrame:
        reader = spark.readStream if stream else spark.read
        return reader.format("scylla_cdc").options(**{**options, **more}).load()

    return load


@pytest.fixture
def rows(options: dict[str, str]) -> Rows:
    """Read table `t` of the test's keyspace as an executor does, without Spark."""

    def rows(**more: str) -> list[dict[str, Any]]:
        parsed = SourceOptions.parse({**options, **more})
        reader = batch_reader(parsed)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]

    return rows


@pytest.fixture
def execute(scylla: Scylla, keyspace: str) -> Execute:
    """Execute statements in order. ``{t}`` stands for the table."""

    def execute(*statements: str) -> None:
        for statement in statements:
            scylla.session.execute(statement.replace("{t}", f"{keyspace}.t"))

    return execute
