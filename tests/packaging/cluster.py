"""A standalone Spark cluster of a master and two workers, which cannot see the driver's files."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import IO

import pyspark
from attrs import frozen

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_HIDING = ("unshare", "--map-root-user", "--mount", "sh", "-c")
_MASTER_URL = r"Starting Spark master at (spark://\S+)"
_REGISTERED = "Successfully registered with master"
_MEMORY = "512m"


@frozen
class Cluster:
    """A running cluster; `conf` fits an application to its workers."""

    master: str
    conf: dict[str, str]


def can_hide() -> bool:
    """True if this machine lets a process hide a folder from itself."""
    ran = subprocess.run([*_HIDING, "mount -t tmpfs none /mnt"], capture_output=True, check=False)
    return ran.returncode == 0


@contextmanager
def running(folder: Path, path: str, hidden: Path) -> Iterator[Cluster]:
    """Yield a cluster whose workers have `path` as PATH, and cannot see the folder `hidden`."""
    environment = {name: os.environ[name] for name in ("JAVA_HOME", "HOME") if name in os.environ}
    environment |= {"PATH": path, "SPARK_DAEMON_MEMORY": "256m"}
    with ExitStack() as stack:

        def start(pattern: str, *command: str) -> re.Match[str]:
            process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return _told(process, pattern)

        master = start(_MASTER_URL, *_daemon("master.Master", 1))[1]
        for number in (2, 3):
            work = str(folder / f"worker-{number}")
            size = ("--cores", "1", "--memory", _MEMORY, "--work-dir", work)
            worker = _daemon("worker.Worker", number)
            hide = f'mount -t tmpfs none "{hidden}" && exec "$@"'
            start(_REGISTERED, *_HIDING, hide, "sh", *worker, *size, master)
        yield Cluster(master, {"spark.executor.memory": _MEMORY, "spark.driver.host": "127.0.0.1"})


def _daemon(name: str, number: int) -> list[str]:
    """Return the command of a part of Spark, on a separate loopback address."""
    host = f"127.0.0.{number}"
    ports = ("--port", "0", "--webui-port", "0")
    return [str(_SPARK_CLASS), f"org.apache.spark.deploy.{name}", "--host", host, *ports]


def _told(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Wait for the pattern on standard error, which is then read on so that it never blocks."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if found := re.search(pattern, line):
            Thread(target=_drain, args=[process.stderr]).start()
            return found
    raise AssertionError("".join(lines))


def _drain(stream: IO[str]) -> None:
    """Read a stream to its end."""
    with stream:
        stream.read()
