"""A shard's checkpoint and lease, and the rules for processes that share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from cdc_reader._time import BEGINNING
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.checkpoints.lease import Lease
from cdc_reader.checkpoints.store import CheckpointName, Owner
from cdc_reader.errors import LeaseLostError
from cdc_reader.reading.cursor import Checkpoint
from tests.cdc_reader.simulation.laws import LawBroken
from tests.cdc_reader.simulation.world import ReaderClock, World


class Holding:
    """The checkpoint store of a shard, and the last owner of its lease.

    A lease lasts `duration` µs. If `duration` is 0, there are no leases. `losses` counts the leases
    that were lost to another process.
    """

    def __init__(self, world: World, name: CheckpointName, duration: int) -> None:
        self.store = MemoryCheckpoints(clock=world.clock)
        self.name = name
        self._world = world
        self._duration = timedelta(microseconds=duration)
        self._position = BEGINNING
        self._first: Checkpoint | None = None
        self._owners = 0
        self._last: Hold | None = None
        self._holds: list[Hold] = []
        self.losses = 0

    def load(self, first: Callable[[], Checkpoint]) -> Checkpoint:
        """Return the last saved checkpoint, or the first process's start if none is saved.

        All processes share this start, because a consumer saves its start before it reads.
        """
        self._first = self._first or first()
        return self.store.load(self.name) or self._first

    @property
    def has_leases(self) -> bool:
        return bool(self._duration)

    def hold(self, ahead: int) -> Hold:
        """Return the lease of a new process, whose clock is `ahead` µs ahead of the cluster's."""
        self._owners += 1
        owner = Owner(str(self._owners), "host", self._owners, self._world.clock.now())
        clock = ReaderClock(self._world, ahead)
        lease = Lease(self.store, self.name, owner, self._duration, clock)
        hold = Hold(self, lease, owner.pid)
        self._holds.append(hold)
        return hold

    def acquired(self, hold: Hold) -> None:
        """Record that the store has granted the lease of `hold`."""
        if any(other.is_sure for other in self._holds if other is not hold):
            raise LawBroken(f"{hold} acquires what another is sure to hold")
        self._last = hold

    def handles(self, hold: Hold) -> None:
        """Check that `hold` may call the handler.

        No other process may be sure that it holds the lease.
        """
        if any(other.is_sure for other in self._holds if other is not hold):
            raise LawBroken(f"{hold} handles what another does")

    def saved(self, hold: Hold, kept: Checkpoint) -> None:
        """Check a checkpoint that `hold` has saved.

        `hold` must be the last to acquire the lease, and the position must not move back.
        """
        if self.has_leases and hold is not self._last:
            raise LawBroken(f"{hold} saves, and {self._last} acquired the lease after it")
        if kept.position < self._position:
            raise LawBroken(f"{hold} takes the checkpoint back from {self._position}")
        self._position = kept.position


class Hold:
    """A process's lease, with checks of its use. If there are no leases, it counts as held."""

    def __init__(self, holding: Holding, lease: Lease, number: int) -> None:
        self._holding = holding
        self._lease = lease
        self._number = number

    def __str__(self) -> str:
        return f"owner {self._number}"

    @property
    def is_sure(self) -> bool:
        return not self._holding.has_leases or self._lease.is_sure

    def acquire(self) -> bool:
        """Try to acquire the lease. Return True if it is held now."""
        if self._holding.has_leases:
            if self._lease.acquire() is not None:
                return False
            self._holding.acquired(self)
        return True

    def keep(self) -> None:
        """Renew the lease if needed before a handler call. Raise LeaseLostError if it is lost."""
        if not self.is_sure:
            self.renew()
        if self._holding.has_leases:
            self._holding.handles(self)

    def renew(self) -> None:
        """See `Lease.renew`."""
        if self._holding.has_leases:
            with self._counting():
                self._lease.renew()

    @contextmanager
    def _counting(self) -> Iterator[None]:
        try:
            yield
        except LeaseLostError:
            self._holding.losses += 1
            raise

    def release(self) -> None:
        """See `Lease.release`."""
        if self._holding.has_leases:
            self._lease.release()

    def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Save the checkpoint, and return it as stored."""
        store, name = self._holding.store, self._holding.name
        if self._holding.has_leases:
            with self._counting():
                self._lease.save(checkpoint)
        else:
            store.save(name, checkpoint)
        kept = store.load(name)
        assert kept is not None
        self._holding.saved(self, kept)
        return kept
