"""Empty environments for installations, and the built distributions."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from attrs import frozen

from tests.locking import locked

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path, status: int = 0) -> str:
    """Run a command, which must exit with status `status`. Return its standard output."""
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
        """Add all packages except this project from the environment of the tests.

        Python reads the ``.pth`` files in a site directory, but not those in a directory that a
        ``.pth`` file adds, so editable installations in the tests' environment stay invisible.
        """
        [site_packages] = self.folder.glob("lib/python*/site-packages")
        (site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))

    def install(self, *what: str | Path) -> None:
        """Install this project alone, without the network."""
        options = ("--no-deps", "--no-index", "--no-build-isolation", "--quiet")
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", *options)
        run(*pip, *what, cwd=self.folder)

    def execute(self, code: str, status: int = 0) -> str:
        """Run the code in a directory outside the project, and return its output."""
        return run(self.python, "-c", code, cwd=self.folder, status=status)


def make_environment(folder: Path) -> Environment:
    """Create an empty environment."""
    venv.create(folder, with_pip=False)
    return Environment(folder)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment with all packages except this project."""
    made = make_environment(tmp_path / "environment")
    made.borrow()
    return made


@pytest.fixture(scope="session")
def wheel(shared: Path) -> Path:
    """The built wheel."""
    return _built("wheel", shared)


@pytest.fixture(scope="session")
def sdist(shared: Path) -> Path:
    """The built source distribution."""
    return _built("sdist", shared)


def _built(kind: str, shared: Path) -> Path:
    """Return the distribution in the directory that processes share; build it if it is missing."""
    folder = shared / kind
    with locked(folder):
        if not folder.exists():
            run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder, cwd=ROOT)
        [built] = folder.iterdir()
    return built
