"""Fixtures that run tests with both kernels."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from cdc_reader.cql.schema import Column
from cdc_reader.decoding.choice import MODULES
from tests.cdc_reader.decoding.wire import page_of

Decode = Callable[..., pa.RecordBatch]
"""A function that decodes the body of a result. `columns` are the columns, if already known."""


def kernel(name: str) -> ModuleType:
    """Return a kernel. If it is missing, the test fails, or is skipped if there is no compiler."""
    try:
        return import_module(MODULES[name])
    except ModuleNotFoundError:
        if not can_compile():
            pytest.skip("there is neither a compiled kernel nor a C compiler")
        pytest.fail("the compiled kernel was not built: install the project anew")


def can_compile() -> bool:
    """Return True if a C compiler and Python's headers are installed."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return shutil.which(compiler.split()[0]) is not None and headers.exists()


@pytest.fixture(scope="session", params=sorted(MODULES))
def decode(request: pytest.FixtureRequest) -> Decode:
    """A function that decodes with a kernel. Each test runs once per kernel."""
    return decoder(kernel(request.param))


@pytest.fixture(scope="session")
def twins() -> tuple[Decode, Decode]:
    """The decoding functions of the compiled kernel and of the Python kernel."""
    return decoder(kernel("cython")), decoder(kernel("python"))


def decoder(kernel: ModuleType) -> Decode:
    """Return a function that decodes a result body with the kernel."""

    def decode(body: bytes, columns: Sequence[Column] | None = None) -> pa.RecordBatch:
        batch: pa.RecordBatch = kernel.decode(page_of(body, columns))
        return batch

    return decode
