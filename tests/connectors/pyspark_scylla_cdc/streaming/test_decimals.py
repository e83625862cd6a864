"""A new stream whose numbers become text warns of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.connectors.pyspark_scylla_cdc.support.followed_log import FollowedLog

if TYPE_CHECKING:
    from cassandra.cluster import Session

Make = Callable[..., FollowedLog]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "rates, total"),
        ({"columns": "v"}, None),
        ({"decimalType": "total: decimal(9, 2)"}, "rates"),
        ({"decimalType": "total: decimal(9, 2), rates: string"}, None),
        ({"decimalType": "decimal(9, 2)"}, None),
    ],
)
def test_numbers_as_text(
    follow: Make,
    session: Session,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, str],
    told: str | None,
) -> None:
    """A new query warns once of each column of numbers without a type."""
    session.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
    )
    session.execute(
        "CREATE TABLE ks.t (pk int PRIMARY KEY, v int, total decimal, rates frozen<list<varint>>) "
        "WITH cdc = {'enabled': true, 'postimage': true}"
    )
    followed = follow(**options)
    followed.run(120)
    followed.start()  # from a checkpoint
    followed.run(120)
    found = [line for line in caplog.messages if "decimals_as_text" in line]
    assert len(found) == (told is not None)
    assert all(f"columns='{told}'" in line for line in found)
