"""Chooses the kernel: the compiled one if it was built, else the one in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from cdc_reader.errors import ConfigurationError

VARIABLE = "CDC_READER_KERNEL"
MODULES = {"cython": "cdc_reader.decoding._native", "python": "cdc_reader.decoding.python"}


def choose(
    wanted: str | None, load: Callable[[str], ModuleType] = import_module
) -> tuple[str, ModuleType]:
    """Return the name and module of the kernel `wanted`, or of the fastest available.

    Raises ConfigurationError for an unknown name, and for a kernel that cannot be loaded.
    """
    if not wanted:
        return _fastest(load)
    if wanted not in MODULES:
        raise ConfigurationError(VARIABLE, wanted, f"expected one of {', '.join(MODULES)}")
    try:
        return wanted, load(MODULES[wanted])
    except ImportError as error:
        raise ConfigurationError(
            VARIABLE,
            wanted,
            f"this kernel cannot be loaded ({error}): install a C compiler and Python's headers, "
            "and this package anew from its sources; or leave the variable unset",
        ) from error


def _fastest(load: Callable[[str], ModuleType]) -> tuple[str, ModuleType]:
    try:
        return "cython", load(MODULES["cython"])
    except ModuleNotFoundError:  # not built; a kernel that exists but is broken raises
        return "python", load(MODULES["python"])
