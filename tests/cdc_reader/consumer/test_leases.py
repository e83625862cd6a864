"""Only one of several consumers with the same name runs. When it ends, another takes over."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from cdc_reader._time import SteadyClock, SystemClock, duration_micros
from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.checkpoints.store import CheckpointName, Owner
from cdc_reader.config import ConnectionConfig
from cdc_reader.consumer import CdcConsumer, ConsumerConfig, lifecycle
from cdc_reader.consumer.leases import Leases
from cdc_reader.cql.names import TableName
from cdc_reader.errors import LeaseHeldError, LeaseUnsupportedError
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.testing import ManualClock
from tests.cdc_reader.consumer.conftest import PATIENCE, READ, now
from tests.cdc_reader.consumer.processes import Processes, await_some, await_stillness

Write = Callable[..., None]
SHORT = ConsumerConfig(workers=2, checkpoint_interval=timedelta(0), lease=timedelta(seconds=1))
FAILING = evolve(SHORT, on_held="fail")
ROWS = 200


def handled(processes: Processes, *runs: int) -> set[str]:
    """Return all rows that the runs handled."""
    return {row for run in runs for _, row in processes.handled(run)}


@pytest.mark.slow
def test_a_standby_takes_over_from_an_owner_that_was_killed(
    processes: Processes, write: Write
) -> None:
    """On one machine, a standby takes over from a killed owner at once.

    Unacknowledged changes are handled again.
    """
    write(processes.table, ROWS)
    owner = processes.begin(0)
    await_some(processes, 0, owner, 10)
    standby = processes.begin(1, end=now())
    owner.kill()
    owner.join()
    assert owner.exitcode == -signal.SIGKILL
    standby.join()
    assert standby.exitcode == 0
    assert len(handled(processes, 0, 1)) == ROWS
    assert len(handled(processes, 0) & handled(processes, 1)) <= SHORT.workers


@pytest.mark.parametrize("on_held", [pytest.param("wait", marks=pytest.mark.slow), "fail"])
def test_an_owner_that_stood_still_saves_nothing_more(
    processes: Processes, write: Write, on_held: str
) -> None:
    """An owner that resumes after a takeover finishes its current change, but saves nothing.

    The new owner has handled that change too.
    """
    write(processes.table, ROWS)
    owner = processes.begin(0, config=evolve(SHORT, workers=1, on_held=on_held))
    await_some(processes, 0, owner, 10)
    processes.still.touch()
    write(processes.table, ROWS, first=ROWS)
    await_stillness(processes, owner)
    before = len(processes.handled(0))
    processes.still.unlink()
    standby = processes.begin(1, end=now(), config=SHORT)
    standby.join()
    assert standby.exitcode == 0
    assert len(handled(processes, 0, 1)) == 2 * ROWS
    os.kill(owner.pid or 0, signal.SIGCONT)
    if on_held == "wait":
        write(processes.table, 10, first=2 * ROWS)
        await_some(processes, 0, owner, before + 11)
        os.kill(owner.pid or 0, signal.SIGTERM)
    owner.join()
    assert owner.exitcode == (0 if on_held == "wait" else 1)
    assert len(handled(processes, 0) & handled(processes, 1)) == 1
    assert len(processes.handled(0)) == before + (11 if on_held == "wait" else 1)
    last = processes.begin(2, end=now())
    last.join()
    assert handled(processes, 2) == set()


class Slow:
    """A handler that waits for permission to continue."""

    def __init__(self) -> None:
        self.is_at_work, self.may_go_on = threading.Event(), threading.Event()
        self.count = 0

    def __call__(self, _change: Change) -> None:
        self.is_at_work.set()
        self.may_go_on.wait(PATIENCE)
        self.count += 1


def consumer(
    connection: ConnectionConfig, tables: Any, handler: Any, **options: Any
) -> CdcConsumer:
    """Return a consumer that reads up to the current time."""
    settings: dict[str, Any] = {"application": "app", "end": now(), "read": READ, "config": SHORT}
    return CdcConsumer(connection, tables, handler, **(settings | options))


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the messages that the package logged.

    Messages of the driver are omitted, because the driver may log that the server of an earlier
    test has ended. So are those of each start and end.
    """
    return [
        each.getMessage()
        for each in caplog.records
        if each.name.startswith("cdc_reader") and each.name != lifecycle.__name__
    ]


def test_the_second_waits_until_the_first_ends(
    connection: ConnectionConfig, table: str, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """A waiting consumer logs once which process owns the lease, and then finds no changes left."""
    write(table, 20)
    store, slow, rest = MemoryCheckpoints(), Slow(), Slow()
    first = threading.Thread(target=consumer(connection, table, slow, checkpoints=store).run)
    first.start()
    assert slow.is_at_work.wait(PATIENCE)
    with caplog.at_level(logging.WARNING, "cdc_reader"):
        waiting = consumer(connection, table, rest, checkpoints=store)
        second = threading.Thread(target=waiting.run)
        second.start()
        while not messages(caplog):
            second.join(0.01)
        slow.may_go_on.set()
        first.join()
        second.join()
    assert (slow.count, rest.count) == (20, 0)
    [told] = messages(caplog)
    assert "waiting_for_another_consumer" in told
    assert f"process {os.getpid()} on " in told


def test_the_second_fails_if_it_is_to(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """With `on_held="fail"`, a second consumer fails with an error that names the lease's owner."""
    write(table, 20)
    store, slow = MemoryCheckpoints(), Slow()
    first = threading.Thread(target=consumer(connection, table, slow, checkpoints=store).run)
    first.start()
    assert slow.is_at_work.wait(PATIENCE)
    told = rf"{table}, shard 1/1, is already followed by application 'app': process {os.getpid()} "
    with pytest.raises(LeaseHeldError, match=told):
        consumer(connection, table, slow, checkpoints=store, config=FAILING).run()
    slow.may_go_on.set()
    first.join()
    assert slow.count == 20


def test_one_that_waits_can_be_stopped(
    connection: ConnectionConfig, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer that is stopped while it waits saves nothing and raises no error."""
    store = MemoryCheckpoints()
    name = CheckpointName("app", TableName.parse(table))
    other = Owner("other", "host", 1, 0)
    assert store.acquire(name, other, timedelta(hours=1)) == other
    waiting = consumer(connection, table, Slow(), checkpoints=store)
    running = threading.Thread(target=waiting.run)
    running.start()
    while not messages(caplog):
        running.join(0.01)
    waiting.stop()
    running.join(PATIENCE)
    assert not running.is_alive()
    assert store.load(name) is None


def test_shards_and_applications_have_leases_of_their_own(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """Consumers of different shards or applications can run at the same time."""
    write(table, 20)
    store, slow = MemoryCheckpoints(), Slow()
    first = threading.Thread(target=consumer(connection, table, slow, checkpoints=store).run)
    first.start()
    assert slow.is_at_work.wait(PATIENCE)
    others = [{"application": "other"}, {"shard": "1/2"}, {"shard": "2/2"}]
    counts = []
    for options in others:
        handler = Slow()
        handler.may_go_on.set()
        consumer(connection, table, handler, checkpoints=store, **options).run()
        counts.append(handler.count)
    slow.may_go_on.set()
    first.join()
    assert counts[0] == counts[1] + counts[2] == slow.count == 20


class WithoutLeases:
    """A user-defined store without leases."""

    def __init__(self) -> None:
        self._store = MemoryCheckpoints()

    def load(self, name: CheckpointName) -> Checkpoint | None:
        return self._store.load(name)

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        self._store.save(name, checkpoint)

    def close(self) -> None:
        self._store.close()


class Unsupported(MemoryCheckpoints):
    """A store with leases on a server that does not support them."""

    def acquire(self, name: CheckpointName, owner: Owner, duration: timedelta) -> Owner:
        raise LeaseUnsupportedError(f"{name.table}, {owner.host}, {duration}: no leases here")


@pytest.mark.parametrize("store", [WithoutLeases, Unsupported])
def test_a_store_without_leases_is_used_without(
    connection: ConnectionConfig,
    table: str,
    write: Write,
    store: Callable[[], Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A consumer can use a store without leases.

    If the store supports leases but its server does not, a warning is logged.
    """
    write(table, 20)
    kept, name, seen = store(), CheckpointName("app", TableName.parse(table)), Slow()
    seen.may_go_on.set()
    consumer(connection, table, seen, checkpoints=kept).run()
    consumer(connection, table, seen, checkpoints=kept).run()
    assert seen.count == 20
    assert kept.load(name) is not None
    told = [record.getMessage() for record in caplog.records if "no_lease" in record.getMessage()]
    assert len(told) == (2 if store is Unsupported else 0)


def test_nothing_is_handed_out_while_a_lease_may_have_run_out() -> None:
    """If a lease may have expired, delivery waits for a renewal or for the consumer to stop."""
    clock, stopping = ManualClock(now()), threading.Event()
    name = CheckpointName("app", TableName("ks", "t"))
    leases = Leases(MemoryCheckpoints(clock=clock), ConsumerConfig(), stopping)
    assert leases.acquire([name])
    assert leases.wait_for(leases[name.table])
    leases.release()
    stopping.set()
    assert not leases.wait_for(leases[name.table])


def test_a_clock_that_is_set_back_makes_no_lease_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease expires on time even if the wall clock is set back by an hour."""
    name = CheckpointName("app", TableName("ks", "t"))
    leases = Leases(MemoryCheckpoints(), ConsumerConfig(), threading.Event())
    assert leases.acquire([name])
    assert leases[name.table].is_sure
    back = SystemClock().now() - 3_600_000_000
    later = SteadyClock().now() + duration_micros(ConsumerConfig().lease)
    monkeypatch.setattr(SystemClock, "now", lambda _: back)
    monkeypatch.setattr(SteadyClock, "now", lambda _: later)
    assert not leases[name.table].is_sure


def test_a_steady_clock_goes_on_by_itself() -> None:
    """The steady clock returns µs and follows the monotonic clock."""
    steady = SteadyClock()
    outer = time.monotonic_ns()
    first, inner = steady.now(), time.monotonic_ns()
    while time.monotonic_ns() < inner + 1_000_000:
        pass
    least, lap = time.monotonic_ns() - inner, steady.now() - first
    assert least // 1_000 - 1 <= lap <= (time.monotonic_ns() - outer) // 1_000 + 1
