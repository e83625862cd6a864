"""The error message of a command if an extra of this project is not installed."""

from __future__ import annotations


def missing_package(error: ModuleNotFoundError) -> str:
    """Return the name of the package that contains the missing module."""
    return (error.name or "").partition(".")[0]


def not_installed(command: str, error: ModuleNotFoundError, extras: str) -> str:
    """Return a one-line error that names the missing package and the extras to install."""
    return (
        f"{command}: the package {missing_package(error)!r} is not installed: "
        f"run pip install 'scylla-cdc[{extras}]'"
    )
