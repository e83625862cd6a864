"""Fixtures for tests that read from an embedded server."""

from __future__ import annotations

import pytest

from cdc_reader._time import SystemClock
from cdc_reader.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the server and of the readers."""
    return ManualClock(SystemClock().now())
