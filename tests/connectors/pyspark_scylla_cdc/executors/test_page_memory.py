"""A process keeps freed memory, as its page faults show."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys

import pytest

from tests.connectors.pyspark_scylla_cdc.conftest import Execute

PASSES, PAGE = 50, 5 << 20
WHOLE = PASSES * PAGE // resource.getpagesize()
"""The number of faults if each page is faulted in again."""

_READ = """
import json, sys
from pyspark_scylla_cdc.source import ScyllaCdcDataSource

source = ScyllaCdcDataSource(json.load(sys.stdin))
reader = source.reader(source.schema())

def read():
    assert any(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
"""
_COUNT = f"""
import resource, threading

def pages(count):
    for _ in range(count):
        blocks = [b"x" * (1 << 20) for _ in range({PAGE >> 20})]

def faults(act, *arguments):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    act(*arguments)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

def count():
    pages(5)
    faults(pages, {PASSES})

count()
thread = threading.Thread(target=count)  # it has an arena of its own
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that is told")
def test_a_worker_takes_the_memory_of_one_page_for_the_next(
    options: dict[str, str], execute: Execute
) -> None:
    """Only the first reads cause page faults."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk, v) VALUES (1, 1)",
    )
    at_first = printed(_COUNT)
    if min(at_first) < WHOLE / 4:
        pytest.skip("this system has memory faulted in by larger pieces")
    assert max(printed(_READ + "read()" + _COUNT + "faults(read)", options)) < WHOLE / 20


def printed(script: str, given: dict[str, str] | None = None) -> list[int]:
    """Return the output of a separate Python, with its own memory."""
    own = ("MALLOC_", "PYTHONMALLOC", "GLIBC_TUNABLES")
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={name: value for name, value in os.environ.items() if not name.startswith(own)},
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(line) for line in ran.stdout.split()]
