"""Settings of all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes decides no test: the machine may have other things to do, and in a fresh
# checkout the first text drawn waits for tables of Unicode to be built.
settings.register_profile(
    "tests",
    settings(),  # what the profile of CI sets stays
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("tests")
