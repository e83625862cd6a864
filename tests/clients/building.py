"""Builds each client in a separate directory under build/, or in a virtual environment.

Tests of a client are skipped if its build tool is missing or the build fails.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.locking import locked

SOURCES = Path(__file__).parent
BUILD = Path("build", "clients").resolve()
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scylla-cdc-tests"

Command = list[str | Path]

JAVA_DRIVERS = {
    "apache": ("org.apache.cassandra", "4.19.2"),
    "scylla": ("com.scylladb", "4.18.1.0"),
}


def go(module: str) -> Command:
    """Build the client with the gocql driver in the Go module file `module`. Return its command."""
    program = BUILD / "go" / Path(module).stem
    _make("go", "build", "-C", SOURCES / "go", f"-modfile={module}", "-o", program)
    return [program]


def java(driver: str) -> Command:
    """Build the client with a Java driver (see `JAVA_DRIVERS`), and return its command."""
    group, version = JAVA_DRIVERS[driver]
    with _copied("java", driver) as home:
        # Retry look-ups that failed in earlier builds, because the package may be available now.
        quiet = ("--batch-mode", "--quiet", "--update-snapshots", "--file", home / "pom.xml")
        chosen = (f"-Ddriver.group={group}", f"-Ddriver.version={version}")
        _make("mvn", *quiet, *chosen, "compile", "dependency:copy-dependencies")
    return ["java", "-cp", f"{home}/target/classes:{home}/target/lib/*", "Client"]


def rust() -> Command:
    """Build the client with ScyllaDB's Rust driver, and return its command."""
    with _copied("rust") as home:
        _make("cargo", "build", "--quiet", "--manifest-path", home / "Cargo.toml")
    return [home / "target" / "debug" / "client"]


def node() -> Command:
    """Build the client with cassandra-driver for Node, and return its command."""
    with _copied("node") as home:
        _make("npm", "install", "--prefix", home, "--no-package-lock", "--no-audit", "--silent")
    return ["node", home / "client.js"]


def python() -> Command:
    """Build the client with scylla-driver, and return its command."""
    return [environment("scylla-driver==3.29.12") / "python", SOURCES / "python" / "client.py"]


def environment(*requirements: str) -> Path:
    """Return the bin directory of a cached virtual environment with `requirements`.

    scylla-driver and cqlsh need separate environments, because both install a package
    `cassandra`.
    """
    wanted = "\n".join((sys.version, *requirements))
    home = CACHE / hashlib.sha256(wanted.encode()).hexdigest()[:16]
    with locked(home):
        if not (home / "ready").exists():
            venv.create(home, with_pip=True, clear=True)
            _make(home / "bin" / "pip", "install", "--quiet", "--timeout", "30", *requirements)
            (home / "ready").touch()
    return home / "bin"


@contextmanager
def _copied(language: str, variant: str = "") -> Iterator[Path]:
    """Copy a client's sources, to keep build output out of the source tree, and lock the copy."""
    home = BUILD / language / variant
    with locked(home):
        shutil.copytree(SOURCES / language, home, dirs_exist_ok=True)
        yield home


def _make(tool: str | Path, *arguments: str | Path) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} on this machine")
    made = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
    if made.returncode:
        said = [*made.stderr.splitlines(), *made.stdout.splitlines()]
        reasons = [line for line in said if "error" in line.lower()] or said or ["no reason given"]
        pytest.skip(f"{Path(tool).name} failed: {reasons[0].strip()[:500]}")
