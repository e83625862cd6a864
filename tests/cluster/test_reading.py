"""On several machines, each way to read a log delivers each row exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from subprocess import PIPE

import pytest

from tests.cluster.log import ROWS, NumberedLog
from tests.cluster.reader import PROGRAM, Reader
from tests.cluster.standalone import WORKERS, Standalone

MORE = 1_000
STREAM = {"maxRowsPerTrigger": str(ROWS // 4)}

pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.xdist_group("reading"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def reader(cluster: Standalone, log: NumberedLog) -> Iterator[Reader]:
    """An application with an executor on each worker."""
    with (cluster.folder / "reading.log").open("w") as errors:
        driver = cluster.application(PROGRAM, stdin=PIPE, stdout=PIPE, stderr=errors)
        yield Reader(driver, cluster.driver.store, log)
        driver.communicate()


def test_batch(reader: Reader, log: NumberedLog) -> None:
    """The executors of all workers take part in a batch read."""
    assert reader.read("batch") == log.whole
    assert len(reader.read("places")) == WORKERS


@pytest.mark.parametrize("way", ["parquet", "for_each_batch", "delta"])
def test_stream(reader: Reader, log: NumberedLog, way: str) -> None:
    """A restarted query resumes where it stopped."""
    assert reader.read(way, way, **STREAM) == log.whole
    log.fill(MORE)
    assert reader.read(way, way, **STREAM) == log.whole


def test_snapshot(reader: Reader, log: NumberedLog) -> None:
    """A query with a snapshot reads the existing rows, and after a restart the new rows."""
    assert reader.read("parquet", "snapshot", snapshot="initial") == log.whole
    log.fill(MORE)
    assert reader.read("parquet", "snapshot", snapshot="initial") == log.whole
