"""What a process keeps of the memory that it freed, seen by its page faults."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from cdc_reader.testing import EmbeddedScylla

PAGES, PAGE = 50, 5 << 20
_PASS_PAGES = f"""
import resource, threading

def pages(count):
    for _ in range(count):
        blocks = [b"x" * (1 << 20) for _ in range({PAGE >> 20})]

def measured():
    pages(5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    pages({PAGES})
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

measured()
thread = threading.Thread(target=measured)  # it has an arena of its own
thread.start()
thread.join()
"""
_CONNECT = """
import sys
from cdc_reader.config import ConnectionConfig
from cdc_reader.driver.connecting import connect

connect(ConnectionConfig(sys.argv[1]), 100).cluster.shutdown()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that is told")
def test_who_connects_takes_the_memory_of_one_page_for_the_next() -> None:
    """Who does not has it faulted in anew, most of it for each page."""
    whole = PAGES * PAGE // (4 << 10)
    assert min(faults(_PASS_PAGES)) > whole / 4
    with EmbeddedScylla(port=0) as scylla:
        connected = faults(_CONNECT + _PASS_PAGES, f"127.0.0.1:{scylla.port}")
    assert max(connected) < whole / 20


def faults(script: str, *arguments: str) -> list[int]:
    """What a Python of its own prints."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_TUNABLES"))
    }
    command = [sys.executable, "-c", script, *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [int(line) for line in ran.stdout.split()]
