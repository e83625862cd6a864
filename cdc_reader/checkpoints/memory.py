"""Checkpoints in memory, which last as long as the process."""

from __future__ import annotations

import threading
from datetime import timedelta

from attrs import evolve, frozen

from cdc_reader._time import BEGINNING, Clock, Micros, SystemClock, duration_micros
from cdc_reader.checkpoints.marks import prune_marks
from cdc_reader.checkpoints.store import CheckpointName, Owner
from cdc_reader.reading.cursor import Checkpoint


@frozen
class _Held:
    """The owner that last acquired a lease, and when the lease ends, in µs."""

    owner: Owner
    until: Micros


class MemoryCheckpoints:
    """A `LeasingStore` in memory: for tests, and for readers that always start from the beginning.

    `clock` decides when leases expire.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._lock = threading.RLock()
        self._clock = clock or SystemClock()
        self._kept: dict[CheckpointName, Checkpoint] = {}
        self._leases: dict[CheckpointName, _Held] = {}

    def __repr__(self) -> str:
        with self._lock:
            return f"<{type(self).__name__} of {len(self._kept)} checkpoints>"

    def load(self, name: CheckpointName) -> Checkpoint | None:
        """See `CheckpointStore.load`."""
        with self._lock:
            kept = self._kept.get(name)
        return kept and evolve(kept, marks=prune_marks(kept.marks, kept.position))

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        """See `CheckpointStore.save`."""
        with self._lock:
            before = self._kept.get(name)
            marks = {**(before.marks if before else {}), **checkpoint.marks}
            # Like the other stores, keep all rows of a mark, because a position may move back.
            alive = {s: mark for s, mark in marks.items() if mark.reaches(checkpoint.position)}
            self._kept[name] = evolve(checkpoint, marks=alive)

    def acquire(self, name: CheckpointName, owner: Owner, duration: timedelta) -> Owner:
        """See `LeasingStore.acquire`."""
        with self._lock:
            held = self._leases.get(name)
            if held and held.owner != owner and self._clock.now() < held.until:
                return held.owner
            self._hold(name, owner, duration)
        return owner

    def renew(self, name: CheckpointName, owner: Owner, duration: timedelta) -> bool:
        """See `LeasingStore.renew`."""
        with self._lock:
            if not self._is_owner(name, owner):
                return False
            self._hold(name, owner, duration)
        return True

    def release(self, name: CheckpointName, owner: Owner) -> None:
        """See `LeasingStore.release`."""
        with self._lock:
            if self._is_owner(name, owner):
                self._leases[name] = _Held(owner, BEGINNING)

    def save_as(self, owner: Owner, name: CheckpointName, checkpoint: Checkpoint) -> bool:
        """See `LeasingStore.save_as`."""
        with self._lock:
            if not self._is_owner(name, owner):
                return False
            self.save(name, checkpoint)
        return True

    def close(self) -> None:
        """Do nothing: saved checkpoints stay in memory."""

    def _hold(self, name: CheckpointName, owner: Owner, duration: timedelta) -> None:
        self._leases[name] = _Held(owner, self._clock.now() + duration_micros(duration))

    def _is_owner(self, name: CheckpointName, owner: Owner) -> bool:
        held = self._leases.get(name)
        return held is not None and held.owner == owner
