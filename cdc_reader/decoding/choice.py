"""Chooses the kernel: the compiled one if it was built, else the pure-Python one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from cdc_reader._log import get_logger
from cdc_reader.errors import ConfigurationError

log = get_logger(__name__)

VARIABLE = "CDC_READER_KERNEL"
MODULES = {"cython": "cdc_reader.decoding._native", "python": "cdc_reader.decoding.python"}
SLOWER = 25, 45
"""The factors by which the Python kernel is slower: for rows of many types, and of few types."""


def choose(
    wanted: str | None, load: Callable[[str], ModuleType] = import_module
) -> tuple[str, ModuleType]:
    """Return the name and module of the kernel `wanted`; None means the fastest that was built.

    Raises ConfigurationError for an unknown name, and for a kernel that cannot be loaded, such as
    one compiled from another version of the sources.
    """
    name = wanted or "cython"
    if name not in MODULES:
        raise ConfigurationError(VARIABLE, name, f"expected one of {', '.join(MODULES)}")
    try:
        return name, load(MODULES[name])
    except ImportError as error:
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == MODULES[name]
        if is_absent and not wanted:
            return "python", load(MODULES["python"])
        raise ConfigurationError(
            VARIABLE,
            name,
            f"this kernel cannot be loaded ({error}): install a C compiler and Python's headers, "
            "and reinstall this package from source; or set the variable to python",
        ) from error


@functools.cache
def warn_if_not_compiled(name: str, wanted: str | None) -> None:
    """Warn, once per process, if the Python kernel is in use and was not requested."""
    if name == "python" and not wanted:
        least, most = SLOWER
        log.warning(
            "kernel_not_compiled",
            cost=f"decoding takes {least} to {most} times as long",
            remedy="install a wheel for this platform; or install a C compiler and Python's "
            f"headers, and reinstall this package; or set {VARIABLE}=python to accept it",
        )
