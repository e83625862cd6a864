"""``scylla-cdc demo``, run as a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

COMMAND = Path(sys.executable).with_name("scylla-cdc")


def run_demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the demo in a separate process."""
    return subprocess.run(
        [COMMAND, "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "COLUMNS": "160", **environment},
    )


def counts(output: str) -> dict[str, int]:
    """Return the numbers in the summary, keyed by label."""
    summary = output[output.index("summary") :]
    found = re.findall(r"^ +(\w.*?\w) {2,}([\d,]+) *$", summary, re.MULTILINE)
    return {what: int(number.replace(",", "")) for what, number in found}


@pytest.mark.slow
@pytest.mark.spark
def test_embedded() -> None:
    """With an embedded server, the demo succeeds and reports that its counts match."""
    ran = run_demo("--seed", "7")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert "The counts match." in ran.stdout
    statements, *rows = counts(ran.stdout).values()
    assert len(set(rows)) == 1
    assert rows[0] > statements > 100
    assert "insert" in ran.stdout
    assert "spark.readStream" in ran.stdout


@pytest.mark.nightly
@pytest.mark.spark
def test_on_a_cluster(scylla: Scylla) -> None:
    """The demo runs on an existing cluster, and finally drops the keyspace that it created."""
    if scylla.credentials:
        pytest.skip("the demo logs in to clusters that ask for no password")
    ran = run_demo("--contact-points", scylla.contact_point)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    keyspaces = scylla.session.execute("SELECT keyspace_name FROM system_schema.keyspaces")
    assert not [name for (name,) in keyspaces if name.startswith("scylla_cdc_demo")]


def test_without_java(tmp_path: Path) -> None:
    """Without Java, a one-line error says what to install."""
    ran = run_demo(PATH=str(tmp_path), JAVA_HOME=str(tmp_path))
    assert ran.returncode == 1
    assert re.fullmatch(r"Error: Spark needs Java 17 or newer, .*install Java 17.*\n", ran.stderr)


@pytest.mark.nightly
@pytest.mark.spark
def test_unreachable_cluster() -> None:
    """The one-line error for an unreachable cluster names its contact point."""
    ran = run_demo("--contact-points", "127.0.0.1:1")
    assert ran.returncode == 1
    assert ran.stderr.startswith("Error: cannot connect to 127.0.0.1:1")
    assert len(ran.stderr.splitlines()) == 1
