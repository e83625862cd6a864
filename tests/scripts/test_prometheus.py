"""The script that finds the Prometheus programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scripts.conftest import Machine


def test_the_programs_on_path_are_taken(machine: Machine) -> None:
    """If both programs, prometheus and promtool, are on the PATH, they are used."""
    for name in ("promtool", "prometheus"):
        machine.command(name)
    found = machine.run("prometheus")
    assert (found.returncode, found.stdout.strip()) == (0, str(machine.commands))


def test_without_apt_one_line_says_so(machine: Machine, tmp_path: Path) -> None:
    """If one of the two programs is missing, one line says what to install."""
    machine.command("promtool")
    ran = machine.run("prometheus", "--install", PROMETHEUS_DIRECTORY=str(tmp_path))
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"no promtool on PATH and none in {tmp_path}: install Prometheus")
    assert ran.stderr.count("\n") == 1


def test_what_was_unpacked_before_is_taken(machine: Machine, tmp_path: Path) -> None:
    """Programs that were unpacked earlier are used, and not downloaded again."""
    machine.command(str(tmp_path / "usr" / "bin" / "promtool"))
    ran = machine.run("prometheus", PROMETHEUS_DIRECTORY=str(tmp_path))
    assert (ran.returncode, ran.stdout.strip()) == (0, str(tmp_path / "usr" / "bin"))
