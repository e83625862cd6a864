"""Starts a local Spark session with little output, for the demo, examples and tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

__all__ = ["JavaError", "local_session"]

MINIMUM = 17

_MODULE = "jdk.incubator.vector"  # required by Spark's launcher, missing from reduced runtimes

_REMEDY = (
    f"install Java {MINIMUM} or newer (Debian, Ubuntu: apt-get install "
    f"openjdk-{MINIMUM}-jre-headless), or point JAVA_HOME to one"
)


class JavaError(Exception):
    """No Java suitable for Spark was found; the one-line message says what to install."""

    def __init__(self, found: str) -> None:
        super().__init__(f"Spark needs Java {MINIMUM} or newer, and {found}: {_REMEDY}")


def require_java() -> Path:
    """Return the ``java`` that Spark's launcher will use; raise JavaError if it is unsuitable."""
    java = _java()
    version = re.search(r'version "(?:1\.)?(\d+)', _output(java, "-version"))
    if version is None:
        raise JavaError(f"{java} reports no version")
    if int(version[1]) < MINIMUM:
        raise JavaError(f"{java} is Java {version[1]}")
    _output(java, f"--add-modules={_MODULE}", "-version")
    return java


def _java() -> Path:
    if home := os.environ.get("JAVA_HOME"):
        return Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        return Path(found)
    raise JavaError("there is none")


def _output(java: Path, *arguments: str) -> str:
    """Return the output of `java`; raise JavaError if it fails or takes more than 30 seconds."""
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java, as Spark will start it
            [java, *arguments], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        raise JavaError(f"{' '.join([str(java), *arguments])} fails") from None
    return answer.stderr + answer.stdout


_SETTINGS = {
    # The session lives for about a minute, so optimizing JVM code would cost more than it saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def local_session(app_name: str, log_file: Path, **settings: str) -> SparkSession:
    """Start a session on two cores of this machine; Spark's output goes to `log_file`.

    Raises JavaError if there is no Java that Spark can run on.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName(app_name)
    return quiet_session(builder, log_file, {**_SETTINGS, **settings})


def quiet_session(
    builder: SparkSession.Builder, log_file: Path, settings: Mapping[str, str]
) -> SparkSession:
    """Start a session with these settings; Spark's output goes to `log_file`.

    Raises JavaError if there is no Java that Spark can run on.
    """
    require_java()
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _stderr_into(log_file):
        return builder.getOrCreate()


@contextmanager
def _stderr_into(log_file: Path) -> Iterator[None]:
    """Redirect standard error to the file; processes started meanwhile keep writing to it."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log_file.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
