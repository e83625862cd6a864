"""A table replicated by its log is the table, writetimes included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from cdc_reader.config import ConnectionConfig
from cdc_reader.driver.writer import CqlWriter
from cdc_reader.ids import TableName
from cdc_reader.replicator import Replicator
from cdc_reader.testing.comparison import Result
from cdc_reader.testing.replay import raw_select
from tests.cdc_reader.recorded_logs import History, histories

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla


@pytest.fixture(scope="module")
def writer(way: ConnectionConfig) -> Iterator[CqlWriter]:
    """A writer to the server under test."""
    writer = CqlWriter(way)
    yield writer
    writer.close()


def rows_of(result: Result) -> list[str]:
    """The rows, in an order of their own."""
    return sorted(map(repr, (list(row) for row in result.rows)))


@pytest.mark.parametrize("history", histories(), ids=["plain", "both", "full"])
def test_a_recorded_log_gives_the_recorded_table(
    scylla: Scylla, keyspace: str, writer: CqlWriter, history: History
) -> None:
    """Of a real ScyllaDB 5.2: every cell and every writetime, of 1,200 statements' log."""
    recorded = history.recorded
    for cql in [*recorded["types"], recorded["table"].split(" WITH cdc")[0]]:
        scylla.session.execute(cql.replace("{ks}", keyspace))
    replicator = Replicator(writer, {TableName("ks", "t"): TableName(keyspace, "t")})
    for change in history.changes():
        replicator.apply(change)
    base = raw_select(scylla.session, f"SELECT * FROM {keyspace}.t")
    times = raw_select(scylla.session, recorded["writetimes_cql"].replace("{ks}", keyspace))
    assert rows_of(base) == rows_of(Result.from_recording(recorded["base"]))
    assert rows_of(times) == rows_of(Result.from_recording(recorded["writetimes"]))
