"""Warnings about a kernel that was not compiled."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_reader.decoding.choice import SLOWER
from cdc_reader.testing import EmbeddedScylla

PAGE = Path(__file__).parents[3] / "docs/explanation/performance.md"
READ = """
import sys
{first}
from cdc_reader import CdcReader
with CdcReader(sys.argv[1], "ks.t") as reader:
    print("the schema has", len(reader.table.schema.columns), "columns", file=sys.stderr)
    for _ in range(2):
        assert sum(batch.num_rows for batch in reader.batches()) == 1
"""
ABSENT = "sys.modules['cdc_reader.decoding._native'] = None  # importing it fails"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A server whose table has one change."""
    with EmbeddedScylla(vnodes=4, shards=1) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        server.execute("CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}")
        server.execute("INSERT INTO ks.t (p) VALUES (1)")
        yield server


def stderr_of(server: EmbeddedScylla, first: str, **environment: str) -> list[str]:
    """Read the table's log twice in a new process, and return the lines of its stderr."""
    inherited = {name: value for name, value in os.environ.items() if "KERNEL" not in name}
    return subprocess.run(
        [sys.executable, "-c", READ.format(first=first), server.contact_point],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stderr.splitlines()


def test_a_missing_kernel_is_reported_once_when_rows_are_read(server: EmbeddedScylla) -> None:
    """When rows are read without the compiled kernel, one line states the cost and the remedy."""
    opened, warning = stderr_of(server, ABSENT)
    assert opened.startswith("the schema has")
    assert "event='kernel_not_compiled'" in warning
    assert "cost='decoding takes 25 to 45 times as long'" in warning
    assert "install a wheel for this platform; or install a C compiler" in warning


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", ABSENT], ids=["compiled", "absent"])
def test_a_chosen_kernel_is_not_reported(server: EmbeddedScylla, first: str) -> None:
    """No warning is printed if the user chose the slow kernel."""
    [opened] = stderr_of(server, first, CDC_READER_KERNEL="python")
    assert opened.startswith("the schema has")


def test_the_cost_is_that_of_the_published_results() -> None:
    """The factors in the warning are within a factor of two of the published measurements."""
    page = PAGE.read_text()

    def rate(benchmark: str) -> int:
        [figure] = re.findall(rf"^\| `{benchmark}` \| ([\d,]+) rows/s", page, re.MULTILINE)
        return int(figure.replace(",", ""))

    for told, benchmark in zip(SLOWER, ("decode_rich", "decode_flat"), strict=True):
        measured = rate(benchmark) / rate(f"{benchmark}_python")
        assert measured / 2 < told < measured * 2
