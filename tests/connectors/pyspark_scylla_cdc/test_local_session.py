"""The quiet local Spark session, and its errors without a suitable Java."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_scylla_cdc.local_session import JavaError, require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fake_java(folder: Path, script: str) -> None:
    """Create a `java` under `folder` that runs this shell script."""
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)


@pytest.mark.spark
def test_session_works(spark: SparkSession) -> None:
    """The session runs a query."""
    assert spark.range(5).count() == 5


def test_java_is_found() -> None:
    """`require_java` returns the path of the program."""
    assert require_java().name == "java"


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If there is no Java, the one-line error states what to install."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError, match="there is none: install Java 17 or newer"):
        require_java()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("""echo 'java version "1.8.0_402"' >&2""", "is Java 8: install Java 17 or newer"),
        ("""echo 'openjdk version "11.0.2" 2019' >&2""", "is Java 11: install"),
        ("exit 1", "-version fails: install"),
        (
            """test "$1" = -version && echo 'openjdk version "17.0.1"'""",
            "java --add-modules=jdk.incubator.vector -version fails: install",
        ),
        ("echo hello", "reports no version: install"),
    ],
)
def test_unfit_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, expected: str
) -> None:
    """If Java is too old or broken, the error says what is wrong and what to install."""
    fake_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=expected) as refused:
        require_java()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1-ea"])
def test_fit_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    """Java 17 and all newer versions are suitable."""
    fake_java(tmp_path, f"""echo 'openjdk version "{version}"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert require_java() == tmp_path / "bin" / "java"
