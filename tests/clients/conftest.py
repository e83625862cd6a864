"""The versions of the embedded server for the clients; a server of --scylla has its own."""

import pytest

VERSIONS = ("5.2", "2026.1")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of clients once for each version."""
    if "version" in metafunc.fixturenames:
        target = metafunc.config.getoption("--scylla") or "embedded"
        own = [target.rpartition("@")[2]]  # without a password
        metafunc.parametrize("version", VERSIONS if target == "embedded" else own)
