"""The checkpoint table: requests per save, and errors for unusable tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_reader.checkpoints import ScyllaCheckpoints
from cdc_reader.checkpoints.scylla_table import SCHEMA
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.config import ConnectionConfig
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError, RetriesExhaustedError
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations, Mark, RowKey
from cdc_reader.streams.stream import StreamId

if TYPE_CHECKING:
    from cdc_reader.testing import EmbeddedScylla, Scylla

NAME = CheckpointName("app", TableName("ks", "t"))
NOW = 1_700_000_000_000_000
KNOWN = KnownGenerations(0, (1,))
STREAMS = [StreamId.from_parts(token, 0, 0) for token in range(50)]


@pytest.fixture
def store(connection: ConnectionConfig, keyspace: str) -> Iterator[ScyllaCheckpoints]:
    """A store in a fresh keyspace."""
    store = ScyllaCheckpoints(connection, keyspace, retry_deadline=timedelta(seconds=1))
    yield store
    store.close()


def mark(micros: int) -> Mark:
    """Return a mark that covers all rows up to `micros` µs after `NOW`."""
    return Mark(RowKey(timeuuid.make(NOW + micros, bytes(8)).bytes, 0))


@pytest.mark.needs("faults")
def test_an_idle_window_is_one_write(
    scylla: Scylla, store: ScyllaCheckpoints, keyspace: str
) -> None:
    """Saving a position takes one request, even if earlier saves stored marks."""
    from cdc_reader.testing import Fault

    server: EmbeddedScylla = scylla.server  # type: ignore[assignment]  # the test needs faults
    store.save(NAME, Checkpoint(NOW, KNOWN, dict.fromkeys(STREAMS, mark(5))))
    store.save(NAME, Checkpoint(NOW + 10, KNOWN))
    all_statements = Fault("delay", f"{keyspace}.cdc_checkpoints", times=None, seconds=0.000_001)
    with server.faults.during(all_statements):
        for window in range(2, 12):
            store.save(NAME, Checkpoint(NOW + 10 * window, KNOWN))
        assert server.faults.struck(all_statements) == 10
    assert store.load(NAME) == Checkpoint(NOW + 110, KNOWN)


def test_obsolete_marks_are_deleted(
    scylla: Scylla, store: ScyllaCheckpoints, keyspace: str
) -> None:
    """Marks below the new position are deleted. Other marks are stored under the new position."""
    store.save(NAME, Checkpoint(NOW, KNOWN, dict.fromkeys(STREAMS, mark(5))))
    store.save(NAME, Checkpoint(NOW, KNOWN, {STREAMS[3]: mark(15)}))
    store.save(NAME, Checkpoint(NOW + 10, KNOWN))
    rows = scylla.session.execute(f"SELECT base, stream FROM {keyspace}.cdc_checkpoints").all()
    assert [tuple(row) for row in rows] == [(NOW + 10, STREAMS[3])]


def test_a_clock_that_is_behind_does_not_lose_saves(
    store: ScyllaCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each save gets a later timestamp than earlier saves, including saves of other processes."""
    store.save(NAME, Checkpoint(NOW, KNOWN, {STREAMS[0]: mark(5)}))
    store.close()
    hour = 3_600_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda real=time.time_ns: real() - hour)
    store.save(NAME, Checkpoint(NOW, KNOWN, {STREAMS[0]: mark(7)}))
    store.save(NAME, Checkpoint(NOW + 1, None))
    store.close()
    assert store.load(NAME) == Checkpoint(NOW + 1, None, {STREAMS[0]: mark(7)})


def test_a_checkpoint_expires_by_its_ttl(
    scylla: Scylla, connection: ConnectionConfig, keyspace: str
) -> None:
    """Positions and marks are stored with the configured TTL."""
    store = ScyllaCheckpoints(connection, keyspace, "c", ttl=timedelta(days=3))
    store.save(NAME, Checkpoint(NOW, KNOWN, {STREAMS[0]: mark(5)}))
    store.close()
    query = f"SELECT ttl(position), ttl(acked_through) FROM {keyspace}.c"
    [(position, acked_through)] = scylla.session.execute(query).all()
    assert 259_190 <= position <= 259_200
    assert 259_190 <= acked_through <= 259_200


def test_a_missing_keyspace_is_reported(connection: ConnectionConfig) -> None:
    """The error for a missing keyspace says to give an existing keyspace."""
    store = ScyllaCheckpoints(connection, "no_such_keyspace")
    with pytest.raises(CheckpointError, match=r"no_such_keyspace.*give an existing keyspace"):
        store.load(NAME)
    store.close()


def test_another_table_is_refused(
    scylla: Scylla, connection: ConnectionConfig, keyspace: str
) -> None:
    """A table with other columns is rejected before anything is written."""
    scylla.session.execute(f"CREATE TABLE {keyspace}.t (application text PRIMARY KEY, stream int)")
    store = ScyllaCheckpoints(connection, keyspace, "t")
    for use in (lambda: store.save(NAME, Checkpoint(NOW)), store.names):
        with pytest.raises(CheckpointError, match=r"is not a checkpoint table.*position bigint"):
            use()
    store.close()


def test_a_table_of_another_version_is_refused(
    scylla: Scylla, connection: ConnectionConfig, keyspace: str
) -> None:
    """A table with one column more was made by another version."""
    first, second = (ScyllaCheckpoints(connection, keyspace, "t") for _ in range(2))
    first.save(NAME, Checkpoint(NOW))
    scylla.session.execute(f"ALTER TABLE {keyspace}.t ADD added int")
    with pytest.raises(CheckpointError, match="differs in added int; use the version of scylla"):
        second.load(NAME)
    first.close()
    second.close()


def test_a_table_without_one_of_the_columns_is_refused(
    scylla: Scylla, store: ScyllaCheckpoints, keyspace: str
) -> None:
    """The error names the missing column, and the table stays unchanged."""
    schema = SCHEMA.format(table=f"{keyspace}.cdc_checkpoints")
    scylla.session.execute(schema.replace("    cursor text static,\n", ""))
    with pytest.raises(CheckpointError, match=r"differs in cursor text; use"):
        store.load(NAME)
    cql = "SELECT column_name FROM system_schema.columns WHERE keyspace_name = %s"
    assert len(scylla.session.execute(cql, (keyspace,)).all()) == 11
    store.close()


@pytest.mark.needs("faults")
def test_a_save_is_retried_and_given_up_at_the_deadline(
    scylla: Scylla, store: ScyllaCheckpoints, keyspace: str
) -> None:
    """A save that fails at its deadline leaves the checkpoint unchanged. A later save succeeds."""
    from cdc_reader.testing import Fault

    server: EmbeddedScylla = scylla.server  # type: ignore[assignment]  # the test needs faults
    store.save(NAME, Checkpoint(NOW))
    server.faults.add(Fault("overloaded", f"{keyspace}.cdc_checkpoints", times=2))
    store.save(NAME, Checkpoint(NOW + 1))
    for_good = Fault("unavailable", f"{keyspace}.cdc_checkpoints", times=None)
    with (
        server.faults.during(for_good),
        pytest.raises(RetriesExhaustedError, match=rf"checkpoints in {keyspace}.cdc_checkpoints"),
    ):
        store.save(NAME, Checkpoint(NOW + 2))
    assert store.load(NAME) == Checkpoint(NOW + 1)
    store.save(NAME, Checkpoint(NOW + 3))
    assert store.load(NAME) == Checkpoint(NOW + 3)


def test_the_schema_is_the_documented_one() -> None:
    """The reference page contains the schema word for word."""
    page = Path(__file__).parents[3] / "docs" / "reference" / "checkpoints.md"
    assert SCHEMA.format(table="shop.cdc_checkpoints") in page.read_text()
