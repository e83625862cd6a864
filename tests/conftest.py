"""Settings of all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes decides no test: the machine may have other things to do.
settings.register_profile(
    "tests",
    settings(),  # of CI, where that runs
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("tests")
