"""The connection of readers under test to the server of the run."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from cdc_reader.config import ConnectionConfig

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla


@pytest.fixture(scope="session")
def connection(scylla: Scylla) -> ConnectionConfig:
    """A connection to the server under test."""
    username, password = scylla.credentials or (None, None)
    return ConnectionConfig(
        scylla.contact_point,
        username=username,
        password=password,
        connect_timeout=timedelta(seconds=30),
    )
