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
    has_package = bool(_version("pyspark_scylla_cdc"))
    return {
        "host": socket.gethostname(),
        "folder": os.getcwd(),  # noqa: PTH109 - the text that Spark shows
        "python": sys.executable,
        "version": platform.python_version(),
        "pyspark": _version("pyspark"),
        "pyarrow": _version("pyarrow"),
        "pandas": _version("pandas"),
        "package": _installed("scylla-cdc") if has_package else "",
        "kernel": import_module("cdc_reader.decoding").NAME if has_package else "",
        "cluster": _reach(options) if has_package and options else "",
    }


def _version(module: str) -> str:
    try:
        return str(getattr(import_module(module), "__version__", "installed"))
    except ImportError:
        return ""


def _installed(distribution: str) -> str:
    metadata = import_module("importlib.metadata")
    try:
        return str(metadata.version(distribution))
    except metadata.PackageNotFoundError:
        return "unknown"


def _reach(options: dict[str, str]) -> str:
    parse = import_module("pyspark_scylla_cdc.options.source_options").SourceOptions.parse
    schema_of: Any = import_module("pyspark_scylla_cdc.sessions").schema_of
    try:
        schema_of(parse(options))
    except import_module("cdc_reader.errors").CdcError as error:
        return f"{type(error).__name__}: {error}"
    return "reached"


if __name__ == "__main__":
    print(json.dumps(facts(json.loads(sys.argv[1]))))  # noqa: T201 - the module's output
