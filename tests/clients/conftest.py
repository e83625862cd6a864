"""Runs the tests of clients with several versions of the embedded server."""

import pytest

VERSIONS = ("5.2", "2026.1")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test once per version, or once if --scylla specifies a server."""
    if "version" in metafunc.fixturenames:
        target = metafunc.config.getoption("--scylla") or "embedded"
        own = [target.rpartition("@")[2]]  # without a password
        metafunc.parametrize("version", VERSIONS if target == "embedded" else own)
