"""The command `doctor`, which starts Spark applications of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pyspark
import pytest

from tests.quick_spark import INTERPRETED, START_FAST

pytestmark = pytest.mark.spark

SPARK = Path(pyspark.__file__).parent
HEALTHY = "Spark finds the data source on the driver and on each executor."
CONF = {
    **INTERPRETED,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
}


def doctor(folder: Path, *arguments: str, **conf: str) -> CompletedProcess[str]:
    """Run `doctor` with the running Python; it keeps its files in `folder`."""
    given = [f"--conf={name}={value}" for name, value in {**CONF, **conf}.items()]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "TMPDIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "pyspark_scylla_cdc", "doctor", *arguments, *given],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a cluster's master that has no workers."""
    daemon = "org.apache.spark.deploy.master.Master"
    address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    env = {**os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": START_FAST}
    started = subprocess.Popen(
        [SPARK / "bin" / "spark-class", daemon, *address],
        cwd=tmp_path,
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )
    with started:
        assert started.stderr is not None
        url = re.compile(r"Starting Spark master at (spark://\S+)")
        yield next(found[1] for line in started.stderr if (found := url.search(line)))
        started.kill()


def test_healthy(tmp_path: Path) -> None:
    """Standard error says what the command waits for, and names the log, which is private."""
    ran = doctor(tmp_path, "--master=local[1]")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert HEALTHY in ran.stdout
    [path] = re.findall(
        r"^Starting Spark; its output is in (\S+) \.\.\.$", ran.stderr, re.MULTILINE
    )
    assert Path(path).parent == tmp_path
    assert Path(path).stat().st_mode & 0o077 == 0
    assert "waiting up to 120 s for the executors' tasks ..." in ran.stderr


@pytest.mark.nightly
def test_spark_that_does_not_start(tmp_path: Path) -> None:
    """The reason that Java gives is in the one-line error."""
    ran = doctor(tmp_path, "--master=spark://nonsense")
    assert ran.returncode == 1
    [line] = re.findall("^Error: .*$", ran.stderr, re.MULTILINE)
    assert line.startswith("Error: Spark does not start: Invalid master URL: spark://nonsense; ")
    assert "Traceback" not in ran.stderr


def test_sessions_of_spark_connect_are_refused(tmp_path: Path) -> None:
    """`doctor` cannot see the machines of a server of Spark Connect."""
    ran = doctor(tmp_path, **{"spark.remote": "sc://localhost"})
    assert ran.returncode == 1
    assert ran.stderr.startswith("Error: found a session of Spark Connect, which does not show")


def test_missing_installation_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A SPARK_HOME that does not exist is named in the one-line error."""
    monkeypatch.setenv("SPARK_HOME", "/no/spark")
    ran = doctor(tmp_path, "--master=local[1]")
    assert ran.returncode == 1
    assert "SPARK_HOME is /no/spark: unset or correct it" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.nightly
def test_cluster_without_free_cores(master: str, tmp_path: Path) -> None:
    """If the cluster gives the application no executor, the command ends and says why."""
    ran = doctor(tmp_path, f"--master={master}", "--timeout=2")
    assert ran.returncode == 1
    assert re.search(
        r"1\. 0 of 1 executors were examined within 2 s: the cluster has no free "
        r"cores, or executors cannot reach the driver at 127\.0\.0\.1:\d+\.",
        ran.stdout,
    ), ran.stdout + ran.stderr
    assert "set spark.driver.host to an address that they reach" in ran.stdout
