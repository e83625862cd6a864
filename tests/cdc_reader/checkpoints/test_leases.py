"""In every store that supports leases, only the current owner can save."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from attrs import evolve
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from cdc_reader.checkpoints import MemoryCheckpoints, ScyllaCheckpoints, SqliteCheckpoints
from cdc_reader.checkpoints.lease import Lease
from cdc_reader.checkpoints.store import CheckpointName, Owner
from cdc_reader.cluster.write import Statements
from cdc_reader.config import ConnectionConfig
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.errors import (
    CheckpointError,
    LeaseLostError,
    LeaseUnsupportedError,
    QueryRefusedError,
    TransientError,
)
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations, Mark, RowKey
from cdc_reader.streams.stream import StreamId
from cdc_reader.testing import EmbeddedScylla, Fault, ManualClock

if TYPE_CHECKING:
    from cdc_reader.checkpoints.store import LeasingStore

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND
KNOWN = KnownGenerations(0, (1,))
NAME = CheckpointName("app", TableName("ks", "t"))
DURATION = timedelta(seconds=10)
ONE, OTHER, THIRD = (Owner(str(n), "host", n, NOW) for n in range(3))
OWNERS = st.sampled_from([ONE, OTHER, THIRD])
KEYSPACE = (
    "CREATE KEYSPACE ks WITH replication = "
    "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
    "AND tablets = {'enabled': false}"
)


@pytest.fixture
def clock() -> ManualClock:
    """The clock by which leases expire."""
    return ManualClock(NOW)


@pytest.fixture
def server(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """A server that uses the test's clock."""
    with EmbeddedScylla(clock=clock) as server:
        server.execute(KEYSPACE)
        yield server


@pytest.fixture
def scylla_store(server: EmbeddedScylla) -> Iterator[ScyllaCheckpoints]:
    """A store in a table of `server`."""
    store = ScyllaCheckpoints(ConnectionConfig(server.contact_point), "ks")
    yield store
    store.close()


@pytest.fixture(params=["memory", "sqlite", "scylla"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> Iterator[LeasingStore]:
    """Each kind of store that supports leases."""
    if request.param == "memory":
        yield MemoryCheckpoints(clock=clock)
    elif request.param == "sqlite":
        file = SqliteCheckpoints(tmp_path / "checkpoints.db", clock=clock)
        yield file
        file.close()
    else:
        yield request.getfixturevalue("scylla_store")


class Machine(RuleBasedStateMachine):
    """A state machine of owners that compete for a lease.

    Each wait is far shorter or far longer than a lease. Times close to the expiry are avoided,
    because TTLs count whole seconds.
    """

    store: ClassVar[LeasingStore]
    clock: ClassVar[ManualClock]
    runs: ClassVar[Iterator[int]] = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.name = evolve(NAME, application=f"run {next(self.runs)}")
        self.owner: Owner | None = None
        self.until = 0
        self.saved: Checkpoint | None = None

    @rule(owner=OWNERS)
    def acquire(self, owner: Owner) -> None:
        is_held = self.owner not in (None, owner) and self.clock.now() < self.until
        holder = self.store.acquire(self.name, owner, DURATION)
        assert holder == (self.owner if is_held else owner)
        if not is_held:
            self.owner, self.until = owner, self.clock.now() + 10 * SECOND

    @rule(owner=OWNERS)
    def renew(self, owner: Owner) -> None:
        assert self.store.renew(self.name, owner, DURATION) == (owner == self.owner)
        if owner == self.owner:
            self.until = self.clock.now() + 10 * SECOND

    @rule(owner=OWNERS)
    def release(self, owner: Owner) -> None:
        self.store.release(self.name, owner)
        if owner == self.owner:
            self.until = 0

    @rule(owner=OWNERS, position=st.integers(1, 99))
    def save(self, owner: Owner, position: int) -> None:
        checkpoint = Checkpoint(NOW + position)
        assert self.store.save_as(owner, self.name, checkpoint) == (owner == self.owner)
        if owner == self.owner:
            self.saved = checkpoint

    @rule(seconds=st.sampled_from([3, 60]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds * SECOND)

    @invariant()
    def holds_what_its_owners_saved(self) -> None:
        assert self.store.load(self.name) == self.saved


def test_only_the_last_owner_can_save(store: LeasingStore, clock: ManualClock) -> None:
    """An expired lease stays with its owner until another owner acquires it."""
    Machine.store, Machine.clock = store, clock
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=25, stateful_step_count=20, suppress_health_check=list(HealthCheck)
        ),
    )


def lease(store: LeasingStore, owner: Owner, clock: ManualClock) -> Lease:
    """Return the lease of `owner`."""
    return Lease(store, NAME, owner, DURATION, clock)


def test_an_owner_is_sure_until_its_lease_may_have_expired(
    store: LeasingStore, clock: ManualClock
) -> None:
    """After requesting a lease, an owner relies on it for exactly the lease's duration.

    An expired lease that no other owner has acquired can be renewed.
    """
    mine = lease(store, ONE, clock)
    assert not mine.is_sure
    assert mine.acquire() is None
    clock.advance(10 * SECOND - 1)
    assert mine.is_sure
    clock.advance(1)
    assert not mine.is_sure
    mine.save(Checkpoint(NOW))
    mine.renew()
    assert mine.is_sure
    mine.release()
    assert not mine.is_sure


def test_a_suspended_owner_is_refused_after_a_takeover(
    store: LeasingStore, clock: ManualClock
) -> None:
    """After a takeover, the former owner can neither save nor renew. Others see the new owner."""
    mine, other = lease(store, ONE, clock), lease(store, OTHER, clock)
    assert mine.acquire() is None
    mine.save(Checkpoint(NOW + 5))
    assert other.acquire() == ONE
    clock.advance(60 * SECOND)
    assert other.acquire() is None
    assert other.load() == Checkpoint(NOW + 5)
    other.save(Checkpoint(NOW + 9))
    with pytest.raises(LeaseLostError, match=r"another consumer took over ks\.t, shard 1/1"):
        mine.save(Checkpoint(NOW + 7))
    with pytest.raises(LeaseLostError):
        mine.renew()
    mine.release()
    assert lease(store, THIRD, clock).acquire() == OTHER
    assert store.load(NAME) == Checkpoint(NOW + 9)


def test_many_marks_are_saved_whole_or_not_at_all(store: LeasingStore, clock: ManualClock) -> None:
    """Marks that exceed the size of one transaction are saved atomically, and only by the owner."""
    mark = Mark(RowKey(timeuuid.make(NOW + 5, bytes(8)).bytes, 0), frozenset(_keys(200)))
    marks = {StreamId.from_parts(token, 0, 0): mark for token in range(30)}
    assert lease(store, ONE, clock).acquire() is None
    assert not store.save_as(OTHER, NAME, Checkpoint(NOW, None, marks))
    assert store.load(NAME) is None
    assert store.save_as(ONE, NAME, Checkpoint(NOW, None, marks))
    assert store.load(NAME) == Checkpoint(NOW, None, marks)
    assert store.save_as(ONE, NAME, Checkpoint(NOW + 6))
    rest = Mark(None, frozenset(key for key in mark.rows if key.micros >= NOW + 6))
    assert store.load(NAME) == Checkpoint(NOW + 6, None, dict.fromkeys(marks, rest))


def _keys(count: int) -> Iterator[RowKey]:
    return (RowKey(timeuuid.make(NOW + n, bytes(8)).bytes, n) for n in range(count))


def test_an_owner_has_a_text_form() -> None:
    """The text form of an owner can be parsed; other texts are rejected."""
    text = ONE.to_text()
    assert Owner.from_text(text) == ONE
    assert str(evolve(ONE, pid=7)) == "process 7 on host, since 2023-11-14T22:13:20Z"
    assert Owner.of_this_process(NOW) != Owner.of_this_process(NOW)
    for wrong in ("x", "[]", "{}", f'{{"new": 1, {text[1:]}'):
        with pytest.raises(CheckpointError, match=r"the checkpoint's owner is '.*': expected"):
            Owner.from_text(wrong)


@pytest.mark.parametrize("match", ["lease = null", "owner = ?"])
def test_a_transaction_whose_answer_is_lost_is_repeated(
    server: EmbeddedScylla, scylla_store: ScyllaCheckpoints, match: str
) -> None:
    """A request whose response is lost is repeated, so the lease is held and the save is stored."""
    scylla_store.load(NAME)
    fault = Fault("drop", match)
    with server.faults.during(fault):
        assert scylla_store.acquire(NAME, ONE, DURATION) == ONE
        assert scylla_store.save_as(ONE, NAME, Checkpoint(NOW))
        assert server.faults.struck(fault) == 1
    assert scylla_store.load(NAME) == Checkpoint(NOW)
    assert scylla_store.acquire(NAME, OTHER, DURATION) == ONE


def test_a_save_under_a_lease_is_one_request(
    server: EmbeddedScylla, scylla_store: ScyllaCheckpoints
) -> None:
    """A save under a lease takes one request, even if the position moves past marks."""
    scylla_store.acquire(NAME, ONE, DURATION)
    mark = Mark(RowKey(timeuuid.make(NOW + 5, bytes(8)).bytes, 0))
    all_statements = Fault("delay", "ks.cdc_checkpoints", times=None, seconds=0.000_001)
    with server.faults.during(all_statements):
        scylla_store.save_as(ONE, NAME, Checkpoint(NOW, KNOWN, {StreamId(bytes(16)): mark}))
        scylla_store.save_as(ONE, NAME, Checkpoint(NOW + 9, KNOWN))
        assert server.faults.struck(all_statements) == 2

    assert scylla_store.load(NAME) == Checkpoint(NOW + 9, KNOWN)


def test_a_save_by_a_clock_ahead_is_waited_for(
    scylla_store: ScyllaCheckpoints, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a save with a timestamp in the future, no lease is granted until that time."""
    monkeypatch.setattr(time, "time_ns", lambda: (clock.now() + 3_600 * SECOND) * 1_000)
    scylla_store.save(NAME, Checkpoint(NOW))
    with pytest.raises(TransientError, match=r"clock is 3\d{3}\.?\d* s ahead of the cluster's"):
        scylla_store.acquire(NAME, ONE, DURATION)
    clock.advance(3_601 * SECOND)
    assert scylla_store.acquire(NAME, ONE, DURATION) == ONE
    assert scylla_store.save_as(ONE, NAME, Checkpoint(NOW + 1))
    assert scylla_store.load(NAME) == Checkpoint(NOW + 1)


def test_saves_with_and_without_a_lease_follow_each_other(
    scylla_store: ScyllaCheckpoints, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last save wins, with or without a lease, even if the server's clock is ahead."""
    monkeypatch.setattr(time, "time_ns", lambda: (clock.now() - 3_600 * SECOND) * 1_000)
    scylla_store.save(NAME, Checkpoint(NOW))
    assert scylla_store.acquire(NAME, ONE, DURATION) == ONE
    for position in range(1, 5):
        assert scylla_store.save_as(ONE, NAME, Checkpoint(NOW + 2 * position))
        scylla_store.save(NAME, Checkpoint(NOW + 2 * position + 1))
        assert scylla_store.load(NAME) == Checkpoint(NOW + 2 * position + 1)
        clock.advance(SECOND)


def test_a_server_without_transactions_is_reported(
    scylla_store: ScyllaCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 2025.4, ScyllaDB rejects leases in tables that use tablets, and the error says so."""

    def refuse(_self: Statements, _writes: object) -> None:
        raise QueryRefusedError("ks.t: LWT is not yet supported with tablets")

    monkeypatch.setattr(Statements, "write_if", refuse)
    with pytest.raises(LeaseUnsupportedError, match=r"uses tablets, .* before 2025\.4 .* upgrade"):
        scylla_store.acquire(NAME, ONE, DURATION)
