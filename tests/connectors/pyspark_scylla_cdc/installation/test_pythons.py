"""The Python with which Spark plans, started by scripts that break in different ways."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from pyspark_scylla_cdc.installation.pythons import Command, planner

Script = Callable[[str], Command]
SECONDS = 60.0


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Creates a shell script that Spark would start as Python."""

    def script(text: str) -> Command:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return Command(str(path))

    return script


def test_facts() -> None:
    """The facts about the running Python are found in a process of its own."""
    found = planner(Command(sys.executable), {}, SECONDS)
    assert "error" not in found
    assert found["version"] == sys.version.split()[0]
    assert found["package"]
    assert found["pandas"]


def test_script_that_prints(script: Script) -> None:
    """The lines that a script prints are ignored."""
    found = planner(script(f'echo hello; {sys.executable} "$@"; echo 3; echo bye'), {}, SECONDS)
    assert found["version"]


def test_modules_that_spark_adds(tmp_path: Path) -> None:
    """The Python finds the modules to which Spark adds paths, such as pyspark in an archive."""
    (tmp_path / "pyspark.py").write_text("__version__ = '4.0.0 of Spark'")
    found = planner(evolve(Command(sys.executable), modules=str(tmp_path)), {}, SECONDS)
    assert found["pyspark"] == "4.0.0 of Spark"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("exit 3", "exit status 3: no output"),
        ("kill -9 $$", "exit status -9: no output"),
        ("echo 'conda: no such env' >&2; exit 1", "exit status 1: conda: no such env"),
        (r"printf '\377' >&2; exit 1", "exit status 1: \N{REPLACEMENT CHARACTER}"),
        ("echo hello", "exit status 0: hello"),
        (f"exec {sys.executable} -c 'raise ValueError(\"a\\nb\")'", "exit status 1: ValueError: a"),
    ],
)
def test_script_that_fails(script: Script, text: str, reason: str) -> None:
    """The reason is stated in one line."""
    assert planner(script(text), {}, SECONDS)["error"] == reason


def test_missing_program() -> None:
    """A program that does not exist is reported."""
    found = planner(Command("./environment/bin/python"), {}, SECONDS)
    assert found["error"] == "No such file or directory"


def test_program_that_does_not_answer(script: Script) -> None:
    """The time is limited, even if the script has started another program."""
    found = planner(script("sleep 20; exit"), {}, 0.5)
    assert found["error"] == "no answer within 0.5 s"


def test_script_that_reads_input(script: Script) -> None:
    """A script that waits for input does not get the terminal's."""
    found = planner(script("read answer || exit 4"), {}, SECONDS)
    assert found["error"].startswith("exit status 4")
