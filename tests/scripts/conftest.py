"""A PATH with a single directory, for scripts that search the machine for programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from attrs import frozen

SCRIPTS = Path(__file__).parents[2] / "scripts"
TOOLS = ("sh", "dirname", "sed", "env")


@frozen
class Machine:
    """A directory of commands, and the directory in which scripts look for Java."""

    commands: Path
    jvm_directory: Path

    def command(self, path: str, *lines: str) -> Path:
        """Create a shell script at `path`. A relative path is resolved against `commands`."""
        command = self.commands / path
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        command.chmod(0o755)
        return command

    def run(
        self, script: str, *arguments: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one of the project's scripts. The script's PATH contains only `commands`."""
        return subprocess.run(
            [SCRIPTS / script, *arguments],
            env={
                "PATH": str(self.commands),
                "JVM_DIRECTORY": str(self.jvm_directory),
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with the most basic commands, without root."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for tool in TOOLS:
        (commands / tool).symlink_to(str(shutil.which(tool)))
    machine = Machine(commands, tmp_path / "jvm")
    machine.command("id", "echo 1000")
    return machine
