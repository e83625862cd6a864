"""A second cluster, for commands that have a source and a target."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cassandra.cluster import Session

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session


@pytest.fixture(scope="module")
def target() -> Iterator[EmbeddedScylla]:
    """A second cluster, which commands write to or compare with."""
    with EmbeddedScylla() as server:
        yield server


@pytest.fixture(scope="module")
def there(target: EmbeddedScylla) -> Iterator[Session]:
    """A session with the target."""
    session = open_session(target.host, target.port)
    yield session
    session.cluster.shutdown()
