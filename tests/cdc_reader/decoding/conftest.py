"""Both kernels: what holds for one holds for the other."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from cdc_reader.decoding.choice import MODULES

Decode = Callable[..., pa.RecordBatch]


def kernel(name: str) -> ModuleType:
    """The kernel; where one could have been compiled, its absence is a failure."""
    try:
        return import_module(MODULES[name])
    except ModuleNotFoundError:
        if not can_compile():
            pytest.skip("there is neither a compiled kernel nor a C compiler")
        pytest.fail("the compiled kernel was not built: install the project anew")


def can_compile() -> bool:
    """Whether there is a C compiler, and Python's headers."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return shutil.which(compiler.split()[0]) is not None and headers.exists()


@pytest.fixture(scope="session", params=sorted(MODULES))
def decode(request: pytest.FixtureRequest) -> Decode:
    """Each kernel in turn."""
    decode: Decode = kernel(request.param).decode
    return decode


@pytest.fixture(scope="session")
def twins() -> tuple[Decode, Decode]:
    """The compiled kernel and the plain one."""
    return kernel("cython").decode, kernel("python").decode
