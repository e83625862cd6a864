"""The script that finds Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scripts.conftest import Machine


def test_the_program_on_path_is_taken(machine: Machine) -> None:
    """If Chromium is on the PATH, it is used, and nothing is installed."""
    machine.command("chromium")
    found = machine.run("chromium", "--install")
    assert (found.returncode, found.stdout.strip()) == (0, str(machine.commands / "chromium"))


def test_a_given_program_is_taken(machine: Machine, tmp_path: Path) -> None:
    """CHROMIUM takes precedence over PATH. If its file does not exist, a one-line error says so."""
    machine.command("chromium")
    machine.command(str(tmp_path / "chrome"))
    found = machine.run("chromium", CHROMIUM=str(tmp_path / "chrome"))
    assert (found.returncode, found.stdout.strip()) == (0, str(tmp_path / "chrome"))
    missing = machine.run("chromium", CHROMIUM="/nowhere")
    assert missing.returncode == 1
    assert missing.stderr == "no Chromium at /nowhere: install it, or set CHROMIUM to its path\n"
