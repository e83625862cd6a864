"""Whoever finds only rows that have not settled is told, and so is a batch that reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cdc_reader._time import format_timestamp
from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc.options.source_options import SourceOptions
from tests.connectors.pyspark_scylla_cdc.support.followed_log import (
    SECOND,
    FollowedLog,
    create_table,
)
from tests.connectors.pyspark_scylla_cdc.support.readers import batch_reader

if TYPE_CHECKING:
    from cassandra.cluster import Session

Make = Callable[..., FollowedLog]
TABLETS = pytest.mark.parametrize(
    "tablets", ["{'enabled': true}", "{'enabled': false}"], ids=["tablets", "vnodes"]
)


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    """Return the log lines of an event."""
    return [line for line in caplog.messages if f"event='{event}'" in line]


@TABLETS
def test_a_stream_that_finds_only_new_rows(
    follow: Make,
    session: Session,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    tablets: str,
) -> None:
    """It says once how many there are, and when they have settled."""
    create_table(session, tablets=tablets)
    clock.advance(3600 * SECOND)
    followed = follow(startingTimestamp="earliest")
    for pk in range(3):
        followed.write(pk, age=pk)
    followed.reader.prepareForTriggerAvailableNow()
    assert followed.step() == []
    assert followed.step() == []
    [told] = lines(caplog, "rows_not_settled")
    settled_at = format_timestamp(clock.now() + 30 * SECOND)
    assert f"table='ks.t' rows='6' settled_at='{settled_at}'" in told
    assert "run the query again then, or read them now with spark.read" in told
    clock.advance(31 * SECOND)
    followed.start()
    followed.reader.prepareForTriggerAvailableNow()
    assert {*followed.step()} == {0, 1, 2}
    assert len(lines(caplog, "rows_not_settled")) == 1


def test_a_stream_that_finds_other_rows(
    follow: Make, session: Session, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It says nothing of the newer ones, nor of rows that it will never read."""
    create_table(session, tablets="{'enabled': false}")
    clock.advance(3600 * SECOND)
    followed = follow(startingTimestamp="earliest")
    followed.write(1, age=60)
    followed.write(2)
    assert {*followed.step()} == {1}
    end = format_timestamp(clock.now() - 70 * SECOND)
    ended = follow(startingTimestamp="earliest", endingTimestamp=end)
    assert ended.step() == []
    assert not lines(caplog, "rows_not_settled")


@pytest.mark.parametrize(
    ("age", "options", "told"),
    [
        (0, {}, True),
        (40, {}, False),
        (0, {"confidenceWindow": "0s"}, False),
        (0, {"startingTimestamp": "earliest", "endingTimestamp": "1970-01-02T00:00:00Z"}, False),
    ],
)
def test_a_batch_with_rows_that_have_not_settled(
    session: Session,
    cluster: EmbeddedScylla,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    age: int,
    options: dict[str, str],
    told: bool,
) -> None:
    """It says that rows may still arrive among them."""
    create_table(session, tablets="{'enabled': false}")
    clock.advance(3600 * SECOND)
    at = clock.now() - age * SECOND - 1
    session.execute(f"INSERT INTO ks.t (pk, v) VALUES (1, 0) USING TIMESTAMP {at}")
    known = {"hosts": cluster.contact_point, "keyspace": "ks", "table": "t"}
    parsed = SourceOptions.parse({**known, **options})
    batch_reader(parsed, clock).partitions()
    found = lines(caplog, "rows_may_change")
    assert len(found) == told
    if told:
        settled_at = format_timestamp(clock.now() + 30 * SECOND)
        assert f"table='ks.t' rows='2' settled_at='{settled_at}'" in found[0]
        assert "rows with earlier write times may still arrive among them" in found[0]
