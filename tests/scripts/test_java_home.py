"""The script that chooses a Java, and what it prints or installs if there is none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.scripts.conftest import Machine


def java(machine: Machine, home: Path, version: str) -> Path:
    """Create a Java at `home` that prints its properties like a real one."""
    machine.command(
        str(home / "bin" / "java"),
        f"echo '    java.home = {home}' >&2",
        f"echo '    java.specification.version = {version}' >&2",
    )
    return home


def on_path(machine: Machine, home: Path) -> None:
    """Put the `java` of `home` on the PATH."""
    (machine.commands / "java").symlink_to(home / "bin" / "java")


def test_java_home_comes_first(machine: Machine, tmp_path: Path) -> None:
    """A JAVA_HOME that works takes precedence over the PATH."""
    on_path(machine, java(machine, tmp_path / "path", "21"))
    home = java(machine, tmp_path / "home", "17")
    assert machine.run("java-home", JAVA_HOME=str(home)).stdout == f"{home}\n"


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_a_java_home_that_is_too_old_is_skipped(
    machine: Machine, tmp_path: Path, version: str
) -> None:
    """If the Java of JAVA_HOME is too old, a `java` on the PATH that is new enough is used."""
    good = java(machine, tmp_path / "path", "17")
    on_path(machine, good)
    old = java(machine, tmp_path / "old", version)
    assert machine.run("java-home", JAVA_HOME=str(old)).stdout == f"{good}\n"


def test_a_java_without_sparks_module_is_skipped(machine: Machine) -> None:
    """A reduced runtime without Spark's module is skipped, even if it is new enough."""
    good = java(machine, machine.jvm_directory / "java-21", "21")
    machine.command("java", 'case "$1" in *jdk.incubator.vector) exit 1 ;; esac')
    assert machine.run("java-home").stdout == f"{good}\n"


def test_without_any_java_one_line_says_so(machine: Machine) -> None:
    """Without any Java, nothing is printed to stdout, and one line on stderr says what to run."""
    result = machine.run("java-home")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith("run make install\n")


def test_without_root_one_line_says_what_to_install(machine: Machine) -> None:
    """Without root, one line states the command that installs Java, and nothing is installed."""
    machine.command("apt-get", "exit 1")
    result = machine.run("java-home", "--install")
    assert result.returncode == 1
    assert result.stderr == (
        "Java 17 or newer is missing: install it (Debian, Ubuntu: "
        "sudo apt-get install openjdk-17-jre-headless), then run make again\n"
    )


def test_root_with_apt_gets_the_first_java_that_apt_knows(machine: Machine) -> None:
    """On a distribution without Java 17, the next version that it offers is installed."""
    home = machine.jvm_directory / "java-21"
    installer = java(machine, home.parent.with_name("depot"), "21") / "bin" / "java"
    machine.command("id", "echo 0")
    machine.command("apt-cache", 'test "$2" = openjdk-21-jre-headless')
    machine.command(
        "apt-get",
        'case "$*" in *" openjdk-21-jre-headless")',
        f"    /bin/mkdir -p {home}/bin",
        f"    /bin/cp {installer} {home}/bin/java ;;",
        "esac",
    )
    result = machine.run("java-home", "--install")
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{installer.parent.parent}\n"
