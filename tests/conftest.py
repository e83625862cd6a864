"""Settings of all tests."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from hypothesis import HealthCheck, settings

# The duration of an example decides no test: the machine may be busy, and in a fresh checkout the
# first text drawn waits for tables of Unicode to be built.
settings.register_profile(
    "tests",
    settings(),  # keep what the CI profile sets
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("tests")


def pytest_configure(config: pytest.Config) -> None:
    """Ignore the sockets that Spark 4.0 and 4.1 do not close."""
    if version("pyspark") < "4.2":
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
