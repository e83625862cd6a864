from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

from cdc_reader.decoding.choice import MODULES, choose
from cdc_reader.errors import ConfigurationError
from tests.cdc_reader.decoding.conftest import kernel


def plain_only(name: str) -> ModuleType:
    """Simulate an installation without a compiler."""
    if name != MODULES["python"]:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return import_module(name)


def broken(name: str) -> ModuleType:
    """Simulate an installation whose compiled kernel cannot be loaded."""
    raise ImportError(f"{name}: undefined symbol")


def test_the_compiled_kernel_is_chosen_where_it_was_built() -> None:
    """The compiled kernel is used where it was built. Elsewhere, the Python kernel is used."""
    kernel("cython")
    for unset in (None, ""):
        name, module = choose(unset)
        assert (name, module.__name__) == ("cython", MODULES["cython"])
    name, module = choose(None, plain_only)
    assert (name, module.__name__) == ("python", MODULES["python"])


def test_a_broken_kernel_is_not_passed_over() -> None:
    """A broken kernel raises an error, because a fallback to Python would be slow."""
    with pytest.raises(ConfigurationError, match=r"undefined symbol\): .* reinstall this package"):
        choose(None, broken)


@pytest.mark.parametrize("load", [plain_only, broken])
def test_a_requested_kernel_that_is_missing_is_an_error(load: object) -> None:
    """A requested kernel that is missing raises an error, and the other kernel is not used."""
    with pytest.raises(ConfigurationError, match=r"KERNEL is 'cython': .* C compiler"):
        choose("cython", load)  # type: ignore[arg-type] # parametrize hides the type


def test_an_unknown_kernel_is_an_error_that_names_those_there_are() -> None:
    """The one-line error for an unknown kernel lists the valid kernels."""
    with pytest.raises(ConfigurationError, match="is 'rust': expected one of cython, python"):
        choose("rust")


@pytest.mark.parametrize("name", sorted(MODULES))
def test_the_environment_decides_which_kernel_a_process_runs(name: str) -> None:
    """The environment variable selects the kernel, and `decoding.NAME` names the kernel in use."""
    kernel(name)
    code = "from cdc_reader import decoding; print(decoding.NAME, decoding._kernel.__name__)"
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "CDC_READER_KERNEL": name},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == [name, MODULES[name]]
