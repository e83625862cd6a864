"""Finds out which of the data source's requirements the running Python meets.

Spark sends this module by value to interpreters that may lack the package, and the driver runs the
module's source in the Python in which Spark plans queries. The module therefore imports only the
standard library when it is loaded, and runs in versions of Python that are too old for the package.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
from importlib import import_module
from typing import Any


def facts(options: dict[str, str]) -> dict[str, str]:
    """Return facts about this Python, by name; a package that it lacks has the value "".

    If `options` of the data source are given, the function also reads the schema of the table that
    they specify. The fact `cluster` is then "reached" or the error.
    """
    return {
        "host": socket.gethostname(),
        "folder": os.getcwd(),  # noqa: PTH109 - the text that Spark shows
        "python": sys.executable,
        "version": platform.python_version(),
        **{module: _version(module) for module in ("pyspark", "pyarrow", "pandas")},
        "package": _package(),
        "cluster": _reach(options) if options and _package() else "",
    }


def _version(module: str) -> str:
    try:
        return str(getattr(import_module(module), "__version__", "installed"))
    except ImportError:
        return ""


def _package() -> str:
    if not _version("pyspark_scylla_cdc"):
        return ""
    try:
        return str(import_module("importlib.metadata").version("scylla-cdc"))
    except ImportError:  # the package is on the path, but was not installed
        return "unknown"


def _reach(options: dict[str, str]) -> str:
    source_options: Any = import_module("pyspark_scylla_cdc.options.source_options")
    try:
        import_module("pyspark_scylla_cdc.sessions").schema_of(
            source_options.SourceOptions.parse(options)
        )
    except import_module("cdc_reader.errors").CdcError as error:
        return f"{type(error).__name__}: {error}"
    return "reached"


if __name__ == "__main__":
    print(f"\n{json.dumps(facts(json.loads(sys.argv[1])))}")  # noqa: T201 - the module's output
