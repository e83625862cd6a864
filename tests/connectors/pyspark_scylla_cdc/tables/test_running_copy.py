"""What a running copy does by itself: it follows the columns, holds a lease, and is shown."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from cdc_reader._time import SystemClock
from cdc_reader.checkpoints.spark import SparkCheckpoint
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.errors import LeaseHeldError, LeaseLostError, MirrorError
from pyspark_scylla_cdc import Mirror, ScyllaCdcListener
from pyspark_scylla_cdc.mirroring import copy as copying
from pyspark_scylla_cdc.mirroring import lease as leasing
from pyspark_scylla_cdc.tables.layout import layout_of
from pyspark_scylla_cdc.tables.update import update
from tests.connectors.pyspark_scylla_cdc.support.copied_rows import await_rows, wait_until
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Start = Callable[..., Mirror]
AT_ONCE = {"processingTime": "0 seconds"}
TABLE = "CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}"
DELTALAKE = pytest.mark.parametrize("place", ["deltalake"], indirect=True)


@pytest.fixture
def running(start: Start, place: dict[str, str]) -> Iterator[Start]:
    """Starts a copy with a trigger that does not end, and stops it after the test."""
    copies: list[Mirror] = []

    def begin(**more: Any) -> Mirror:
        copies.append(start(**{**place, "trigger": AT_ONCE, **more}))
        return copies[-1]

    yield begin
    for each in copies:
        each.stop()


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[ScyllaCdcListener]:
    """A listener of the session."""
    made = ScyllaCdcListener(CollectorRegistry())
    spark.streams.addListener(made)
    yield made
    spark.streams.removeListener(made)


def test_new_columns_are_no_failure(
    execute: Execute,
    running: Start,
    listener: ScyllaCdcListener,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy gets the columns, also if nobody waits for it; one line tells, no failure counts."""
    monkeypatch.setattr(copying, "_LOOK", 0.5)
    execute(TABLE, "INSERT INTO {t} (pk, v) VALUES (1, 1)")
    copy = running(name="orders")
    await_rows(copy, 1)
    [first] = copy.queries
    execute("ALTER TABLE {t} ADD phone text", "INSERT INTO {t} (pk, phone) VALUES (2, 'x')")
    wait_until(lambda: copy.read().count() == 2)
    assert {row["pk"]: row["phone"] for row in rows_of(copy.read())} == {1: None, 2: "x"}
    told = [line for line in caplog.messages if "columns_changed" in line]
    assert len(told) == 1
    assert "columns added: phone; the query is started again" in told[0]
    assert first.exception() is None
    wait_until(lambda: any(status.query == "orders" for status in listener.streams))
    assert not any(totals.failures for totals in listener._streams.totals().values())


@pytest.mark.slow
@DELTALAKE
def test_new_columns_between_two_micro_batches_of_a_run(
    execute: Execute, start: Start, place: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `availableNow`, a run that ends at new columns is followed by one that has them."""
    execute(TABLE, "INSERT INTO {t} (pk, v) VALUES (1, 1)")
    assert start(**place).awaitTermination()
    execute("INSERT INTO {t} (pk, v) VALUES (2, 2)")

    def alter(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(copying, "layout_of", layout_of)
        execute("ALTER TABLE {t} ADD phone text", "INSERT INTO {t} (pk, phone) VALUES (3, 'x')")
        return layout_of(*given, **more)

    monkeypatch.setattr(copying, "layout_of", alter)
    copy = start(**place)
    assert copy.awaitTermination()
    assert {row["pk"]: row["phone"] for row in rows_of(copy.read())} == {1: None, 2: None, 3: "x"}


@pytest.mark.slow
def test_new_fields_are_no_failure(
    keyspace: str,
    execute: Execute,
    running: Start,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy gets a field that a user-defined type gains; a dropped column stays in it."""
    monkeypatch.setattr(copying, "_LOOK", 0.5)
    execute(
        f"CREATE TYPE {keyspace}.place (city text)",
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int, p frozen<place>) "
        "WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk, v, p) VALUES (1, 1, {city: 'a'})",
    )
    copy = running()
    await_rows(copy, 1)
    [first] = copy.queries
    execute(
        f"ALTER TYPE {keyspace}.place ADD zip int",
        "INSERT INTO {t} (pk, p) VALUES (2, {city: 'b', zip: 7})",
    )
    wait_until(lambda: copy.read().count() == 2)
    found = {row["pk"]: row["p"] for row in rows_of(copy.read())}
    assert found == {1: {"city": "a", "zip": None}, 2: {"city": "b", "zip": 7}}
    assert first.exception() is None
    [told] = [line for line in caplog.messages if "columns_changed" in line]
    assert "types changed: p; the query is started again" in told
    execute("ALTER TABLE {t} DROP v", "INSERT INTO {t} (pk) VALUES (3)")
    wait_until(lambda: copy.read().count() == 3)
    assert [row["v"] for row in rows_of(copy.read()) if row["pk"] == 1] == [1]
    assert "columns dropped: v; the query is started again" in caplog.text


@pytest.mark.slow
@DELTALAKE
def test_a_column_that_is_dropped_while_it_is_read_is_no_failure(
    execute: Execute,
    running: Start,
    listener: ScyllaCdcListener,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The micro-batch fails and is repeated without the column; no failure counts."""
    monkeypatch.setattr(copying, "_LOOK", 3600.0)
    execute(TABLE, "INSERT INTO {t} (pk, v) VALUES (1, 1)")
    copy = running(name="orders")
    await_rows(copy, 1)
    [first] = copy.queries
    wait_until(lambda: any(each.rows for each in listener.streams))
    before = max(each.batch for each in listener.streams)

    def drop(*given: Any) -> None:
        monkeypatch.setattr(copying, "update", update)
        execute("ALTER TABLE {t} DROP v")
        update(*given)

    monkeypatch.setattr(copying, "update", drop)
    execute("INSERT INTO {t} (pk, v) VALUES (2, 2)")
    await_rows(copy, 2)
    assert "TableAlteredError" in str(first.exception())
    told = [line for line in caplog.messages if "columns_changed" in line]
    assert len(told) == 1
    assert "columns dropped: v; the query is started again" in told[0]
    # Spark reports the failed run before the progress of the next one.
    wait_until(lambda: any(each.rows and each.batch > before for each in listener.streams))
    assert not any(totals.failures for totals in listener._streams.totals().values())


@pytest.mark.slow
@DELTALAKE
def test_a_python_process_that_starts_too_late(
    execute: Execute,
    running: Start,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The query is started again three times, and its failure is reported if that does not help."""
    execute(TABLE, "INSERT INTO {t} (pk, v) VALUES (1, 1)")
    failures = [3]

    def fail(*given: Any) -> None:
        if failures[0]:
            failures[0] -= 1
            raise RuntimeError("Python worker failed to connect back.")
        update(*given)

    monkeypatch.setattr(copying, "update", fail)
    copy = running()
    await_rows(copy, 1)
    assert len([line for line in caplog.messages if "copy_restarted" in line]) == 3
    failures[0] = 1
    execute("INSERT INTO {t} (pk, v) VALUES (2, 2)")
    with pytest.raises(MirrorError, match="Python worker failed to connect back"):
        copy.awaitTermination()


@pytest.mark.slow
@DELTALAKE
def test_a_copy_is_shown_before_its_first_micro_batch(
    execute: Execute,
    start: Start,
    running: Start,
    place: dict[str, str],
    listener: ScyllaCdcListener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lag, headroom and position are those of the checkpoint; the query's name is the copy's."""
    execute(TABLE, "INSERT INTO {t} (pk, v) VALUES (1, 1)")
    assert start(**place).awaitTermination()
    wait_until(lambda: not listener.streams)
    execute("INSERT INTO {t} (pk, v) VALUES (2, 2)")
    is_shown = threading.Event()

    def wait_for_test(*given: Any) -> None:
        assert is_shown.wait(60)
        update(*given)

    monkeypatch.setattr(copying, "update", wait_for_test)
    copy = running(name="orders")
    assert [query.name for query in copy.queries] == ["orders"]
    wait_until(lambda: bool(listener.streams))
    [status] = listener.streams
    assert (status.query, status.rows, status.snapshot_share) == ("orders", 0, None)
    assert 0 <= status.lag_seconds < 3600
    assert 0 < status.retention_headroom_seconds <= 86_400
    is_shown.set()
    await_rows(copy, 2)
    assert SparkCheckpoint(Path(place["checkpoint"]), status.table).names() == [
        CheckpointName("orders", status.table)
    ]
    wait_until(lambda: any(each.rows for each in listener.streams))
    [later] = listener.streams
    assert later.position >= status.position


@DELTALAKE
def test_a_second_copy_in_this_process(
    execute: Execute, running: Start, place: dict[str, str]
) -> None:
    """It is refused, and told who writes; after `stop`, the target is free at once."""
    execute(TABLE, "INSERT INTO {t} (pk, v) VALUES (1, 1)")
    copy = running(name="first")
    told = r"copy is written by first, in process \d+ on .*, whose lease lasts until .*: stop\(\)"
    with pytest.raises(LeaseHeldError, match=told):
        running(name="second")
    with pytest.raises(LeaseHeldError, match=told):
        running(name="second", checkpoint=place["checkpoint"] + "2")
    await_rows(copy, 1)
    assert not copy.awaitTermination(timeout=0)
    copy.stop()
    again = running(name="second")
    execute("INSERT INTO {t} (pk, v) VALUES (2, 1)")
    await_rows(again, 2)


def held(place: dict[str, str], **changed: Any) -> Path:
    """Write the lease of a process on another machine; return the file."""
    file = Path(place["target"] + ".lease")
    until = SystemClock().now() + 60_000_000
    lease = {"id": "other", "name": "night", "host": "far", "process": 7, "until": until, **changed}
    file.write_text(json.dumps(lease))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return file


@DELTALAKE
def test_a_second_copy_in_another_process(
    execute: Execute,
    running: Start,
    place: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lease that is renewed is respected; one that is not, or has ended, is taken."""
    execute(TABLE, "INSERT INTO {t} (pk, v) VALUES (1, 1)")
    held(place)
    sleep = time.sleep

    def renewed(seconds: float) -> None:
        held(place, until=SystemClock().now() + 90_000_000)
        sleep(seconds)

    told = "written by night, in process 7 on far, whose lease"
    with monkeypatch.context() as patched:
        patched.setattr(time, "sleep", renewed)
        with pytest.raises(LeaseHeldError, match=told):
            running()
    [line] = [line for line in caplog.messages if "lease_awaited" in line]
    assert "night, in process 7 on far" in line
    monkeypatch.setattr(leasing, "LENGTH", 1.0)
    copy = running()
    await_rows(copy, 1)
    copy.stop()
    held(place, until=1)
    assert not running().awaitTermination(timeout=0)


@pytest.mark.slow
@DELTALAKE
def test_leases_of_a_process_with_the_same_number(
    execute: Execute, running: Start, place: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a restarted container, the dead process had the same number; its lease is taken.

    A copy that stops leaves a lease that another writer has taken meanwhile, or cannot be read.
    """
    execute(TABLE, "INSERT INTO {t} (pk, v) VALUES (1, 1)")
    held(place, host=socket.gethostname(), process=os.getpid())
    monkeypatch.setattr(leasing, "LENGTH", 1.0)
    copy = running()
    await_rows(copy, 1)
    file = held(place)
    copy.stop()
    assert json.loads(file.read_text())["id"] == "other"
    held(place, until="soon")
    assert not running().awaitTermination(timeout=0)


@DELTALAKE
def test_a_lease_that_is_lost(
    execute: Execute, running: Start, place: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy ends with an error that names the new writer."""
    monkeypatch.setattr(leasing, "RENEWAL", 0.0)
    execute(TABLE, "INSERT INTO {t} (pk, v) VALUES (1, 1)")
    copy = running()
    await_rows(copy, 1)

    def is_lost() -> bool:
        held(place)
        return copy.awaitTermination(timeout=0.1)

    with pytest.raises(LeaseLostError, match="is now written by night, in process 7 on far"):
        wait_until(is_lost)
    assert not any(query.isActive for query in copy.queries)
    assert json.loads(Path(place["target"] + ".lease").read_text())["id"] == "other"


@DELTALAKE
def test_a_query_that_is_stopped_from_outside(
    execute: Execute, running: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The copy has ended, and a line tells so."""
    execute(TABLE)
    copy = running()
    copy.queries[0].stop()
    assert copy.awaitTermination(timeout=60)
    [told] = [line for line in caplog.messages if "copy_stopped" in line]
    assert "its query was stopped from outside; call mirror again to continue" in told


@DELTALAKE
def test_a_failure_that_nobody_awaits(
    execute: Execute,
    running: Start,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is logged in one line."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(copying, "update", fail)
    execute(TABLE, "INSERT INTO {t} (pk, v) VALUES (1, 1)")
    running()
    wait_until(lambda: any("copy_failed" in line for line in caplog.messages))
    [told] = [line for line in caplog.messages if "copy_failed" in line]
    assert "ended: OSError: [Errno 28] No space left on device" in told
    assert "\n" not in told


@DELTALAKE
def test_a_lease_that_cannot_be_written(
    execute: Execute, running: Start, place: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The copy goes on without it, and a line names the file."""
    Path(place["target"] + ".lease").mkdir()
    execute(TABLE, "INSERT INTO {t} (pk, v) VALUES (1, 1)")
    await_rows(running(), 1)
    [told] = [line for line in caplog.messages if "lease_not_written" in line]
    assert f"file='{place['target']}.lease'" in told
