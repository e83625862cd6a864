"""The Java that Spark will run on, checked before Spark fails on it in its own words."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

MINIMUM = 17
_MODULE = "jdk.incubator.vector"  # Spark's launcher asks for it; cut-down runtimes lack it
_REMEDY = (
    f"install Java {MINIMUM} or newer (Debian, Ubuntu: apt-get install "
    f"openjdk-{MINIMUM}-jre-headless), or point JAVA_HOME to one"
)


class JavaError(Exception):
    """No Java that Spark can run on; the message is one line and says what to install."""

    def __init__(self, found: str) -> None:
        super().__init__(f"Spark needs Java {MINIMUM} or newer, and {found}: {_REMEDY}")


def require_java() -> Path:
    """The ``java`` that Spark's launcher will choose; raises JavaError if it is not fit."""
    java = _java()
    told = re.search(r'version "(?:1\.)?(\d+)', _output(java, "-version"))
    if told is None:
        raise JavaError(f"{java} tells no version")
    if int(told[1]) < MINIMUM:
        raise JavaError(f"{java} is Java {told[1]}")
    _output(java, f"--add-modules={_MODULE}", "-version")
    return java


def _java() -> Path:
    if home := os.environ.get("JAVA_HOME"):
        return Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        return Path(found)
    raise JavaError("there is none")


def _output(java: Path, *arguments: str) -> str:
    """What `java` says; raises JavaError if it fails, or says nothing within half a minute."""
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java, as Spark will start it
            [java, *arguments], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        raise JavaError(f"{' '.join([str(java), *arguments])} fails") from None
    return answer.stderr + answer.stdout
