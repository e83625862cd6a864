"""Distributions contain the compiled kernel if it is requested and can be compiled."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.packaging.conftest import Environment

ROOT = Path(__file__).parents[2]
RUNNING = "from cdc_reader import decoding; print(decoding.NAME)"


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Try to build a wheel in `folder`, and return the result."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine without a compiler."""
    monkeypatch.setenv("CC", "no-such-compiler")


@pytest.mark.slow
def test_a_wheel_with_the_kernel_is_platform_specific(
    environment: Environment, wheel: Path
) -> None:
    """The wheel's name contains the platform, and its compiled kernel runs."""
    compiled = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    assert bool(compiled) != wheel.name.endswith("-py3-none-any.whl")
    environment.install(wheel)
    assert environment.execute(RUNNING).strip() == ("cython" if compiled else "python")


@pytest.mark.slow
@pytest.mark.usefixtures("without_compiler")
def test_a_wheel_made_without_a_compiler_suits_any_platform(
    environment: Environment, tmp_path: Path
) -> None:
    """Without a compiler, one line announces the Python kernel, and the wheel uses that kernel."""
    built = build(tmp_path / "dist")
    assert built.returncode == 0, built.stderr
    [said] = [line for line in built.stderr.splitlines() if "kernel" in line]
    assert said.startswith("The kernel is not compiled, so the plain Python one will run: ")
    assert said.endswith("there is no C compiler 'no-such-compiler'")
    [wheel] = (tmp_path / "dist").glob("*-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    environment.install(wheel)
    assert environment.execute(RUNNING).strip() == "python"


def test_a_deselected_kernel_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable that selects a kernel at run time applies to the build too."""
    monkeypatch.setenv("CDC_READER_KERNEL", "python")
    assert build(tmp_path).returncode == 0
    assert list(tmp_path.glob("*-py3-none-any.whl"))


@pytest.mark.usefixtures("without_compiler")
def test_a_required_kernel_that_cannot_be_compiled_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a required kernel cannot be compiled, the build fails instead of using the slow kernel."""
    monkeypatch.setenv("CDC_READER_KERNEL", "cython")
    built = build(tmp_path)
    assert built.returncode != 0
    assert "the kernel was not compiled: there is no C compiler" in built.stderr
    assert not list(tmp_path.iterdir())
