"""The error message if an extra of this project is not installed."""

from __future__ import annotations

_EXTRAS = {
    "click": "cli",
    "cramjam": "embedded",
    "deltalake": "lake",
    "docker": "docker",
    "duckdb": "lake",
    "lark": "embedded",
    "matplotlib": "report",
    "pandas": "spark",
    "prometheus_client": "metrics",
    "py4j": "spark",
    "pyspark": "spark",
    "rich": "cli",
    "sortedcontainers": "embedded",
    "testcontainers": "docker",
}
"""The extra that installs each package."""


def missing_package(error: ModuleNotFoundError) -> str:
    """Return the name of the package that contains the missing module."""
    return (error.name or "").partition(".")[0]


def not_installed(user: str, error: ModuleNotFoundError, extras: str) -> str:
    """Return a one-line error that names the missing package and the extras to install."""
    return (
        f"{user}: the package {missing_package(error)!r} is not installed: "
        f"run pip install 'scylla-cdc[{extras}]'"
    )


def with_extra(name: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error of importing `name`, with the extra to install if one has the package."""
    package = missing_package(error)
    if (extra := _EXTRAS.get(package)) is None:
        return error
    return ModuleNotFoundError(not_installed(name, error, extra), name=package)
