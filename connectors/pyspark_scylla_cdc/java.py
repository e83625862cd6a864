"""The Java that Spark will run on, checked before Spark fails on it in its own words."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

MINIMUM = 17
_REMEDY = (
    f"install Java {MINIMUM} or newer (Debian, Ubuntu: apt-get install "
    f"openjdk-{MINIMUM}-jre-headless), or point JAVA_HOME to one"
)


class JavaError(Exception):
    """No Java that Spark can run on; the message is one line and says what to install."""


def require_java() -> Path:
    """The ``java`` that Spark's launcher will choose; raises JavaError if it is not fit."""
    java = _java()
    version = _major_version(java)
    if version < MINIMUM:
        raise JavaError(f"Spark needs Java {MINIMUM}, and {java} is Java {version}: {_REMEDY}")
    return java


def _java() -> Path:
    if home := os.environ.get("JAVA_HOME"):
        return Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        return Path(found)
    raise JavaError(f"Spark needs Java {MINIMUM}, and there is none: {_REMEDY}")


def _major_version(java: Path) -> int:
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java, as Spark will start it
            [java, "-version"], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        raise JavaError(f"Spark needs Java {MINIMUM}, and {java} does not run: {_REMEDY}") from None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if match is None:
        raise JavaError(f"Spark needs Java {MINIMUM}, and {java} tells no version: {_REMEDY}")
    return int(match[1])
