"""Fixtures that connect readers to the server under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from cdc_reader.config import ConnectionConfig

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

Execute = Callable[..., None]
"""A function that executes statements."""


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """Let connecting take 30 seconds, because other tests may keep the machine busy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cdc_reader.cluster.opening.CONNECT_TIMEOUT", 30.0)
        yield


@pytest.fixture(scope="session")
def connection(scylla: Scylla) -> ConnectionConfig:
    """A connection to the server under test."""
    username, password = scylla.credentials or (None, None)
    return ConnectionConfig(scylla.contact_point, username=username, password=password)


@pytest.fixture
def execute(scylla: Scylla, keyspace: str) -> Execute:
    """A function that executes statements in order.

    In each statement, ``{t}`` stands for table ``t`` of the keyspace.
    """

    def execute(*statements: str) -> None:
        for statement in statements:
            scylla.session.execute(statement.replace("{t}", f"{keyspace}.t"))

    return execute
