"""The script that chooses the Python for the virtual environment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.scripts.conftest import Machine


@pytest.mark.slow
def test_a_python_that_is_too_old_is_skipped(machine: Machine, tmp_path: Path) -> None:
    """The first Python command that is new enough creates the environment."""
    machine.command("python3", "exit 1")
    machine.command("python3.12", f'exec "{sys.executable}" "$@"')
    result = machine.run("make-venv", str(tmp_path / "venv"))
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "venv" / "bin" / "pip").exists()


def test_without_a_python_new_enough_one_line_says_so(machine: Machine, tmp_path: Path) -> None:
    """If no Python is new enough, a one-line error says how to specify another one."""
    machine.command("python3", "exit 1")
    result = machine.run("make-venv", str(tmp_path / "venv"))
    assert result.returncode == 1
    assert result.stderr == (
        "no Python 3.11 or newer found as python3: install one, then run make PYTHON=...\n"
    )


def test_a_python_without_venv_is_completed_by_apt(machine: Machine, tmp_path: Path) -> None:
    """If venv is missing and cannot be installed, the one-line error names its Debian package."""
    machine.command(
        "python3",
        'case "$*" in',
        "    *ensurepip*) exit 1 ;;",
        "    *print*) echo python3.11-venv ;;",
        "esac",
    )
    result = machine.run("make-venv", str(tmp_path / "venv"))
    assert result.returncode == 1
    assert result.stderr == (
        "Python's venv module is missing: install it (Debian, Ubuntu: "
        "sudo apt-get install python3.11-venv), then run make again\n"
    )
