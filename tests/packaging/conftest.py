"""Empty environments to install into, and what is built to be installed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from attrs import frozen

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path, status: int = 0) -> str:
    """The standard output of a command that ends with this status."""
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == status, result.stdout + result.stderr
    return result.stdout


@frozen
class Environment:
    """A virtual environment."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def borrow(self) -> None:
        """Take all but this project from the environment in which the tests run.

        A path entry, unlike a site folder, does not obey the path files in it: what is installed
        as editable where the tests run is not there.
        """
        [site_packages] = self.folder.glob("lib/python*/site-packages")
        (site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))

    def install(self, *what: str | Path) -> None:
        """Install this project alone, with what is at hand."""
        options = ("--no-deps", "--no-index", "--no-build-isolation", "--quiet")
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", *options)
        run(*pip, *what, cwd=self.folder)

    def execute(self, code: str, status: int = 0) -> str:
        """What the code prints, run far from the project's own folder."""
        return run(self.python, "-c", code, cwd=self.folder, status=status)


def make_environment(folder: Path) -> Environment:
    """An environment with nothing in it."""
    venv.create(folder, with_pip=False)
    return Environment(folder)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment with all but this project."""
    made = make_environment(tmp_path / "environment")
    made.borrow()
    return made


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    return _build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built source distribution."""
    return _build("sdist", tmp_path_factory.mktemp("sdist"))


def _build(kind: str, folder: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder, cwd=ROOT)
    [built] = folder.iterdir()
    return built
