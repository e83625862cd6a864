"""Leases ensure that only one consumer with a given name saves checkpoints at a time.

Two rules make this safe, even if a process is suspended for a long time. First, an owner measures
the duration of its lease with its own clock, starting before it sends the request. When the
duration has passed, the owner no longer relies on the lease. Second, once another owner has
acquired the lease, the store rejects each save of the previous owner, however late the save
arrives.
"""

from __future__ import annotations

from datetime import timedelta

from cdc_reader._time import BEGINNING, Clock, Micros, duration_micros
from cdc_reader.checkpoints.store import CheckpointName, LeasingStore, Owner
from cdc_reader.errors import LeaseLostError
from cdc_reader.reading.cursor import Checkpoint


class Lease:
    """The lease of `owner` on the checkpoint `name`.

    The lease lasts for `duration` after it was last acquired or renewed. Renew it well before it
    ends.
    """

    def __init__(
        self,
        store: LeasingStore,
        name: CheckpointName,
        owner: Owner,
        duration: timedelta,
        clock: Clock,
    ) -> None:
        self.name = name
        self._store = store
        self._owner = owner
        self._duration = duration
        self._clock = clock
        self._until = BEGINNING

    @property
    def is_sure(self) -> bool:
        """True if no other owner can hold the lease now."""
        return self._clock.now() < self._until

    def acquire(self) -> Owner | None:
        """Acquire the lease; return None, or else the owner that holds it."""
        requested_at = self._clock.now()
        holder = self._store.acquire(self.name, self._owner, self._duration)
        if holder != self._owner:
            return holder
        self._last_from(requested_at)
        return None

    def renew(self) -> None:
        """Extend the lease by `duration`, even if it has expired.

        Raises LeaseLostError if another owner has acquired the lease.
        """
        requested_at = self._clock.now()
        if not self._store.renew(self.name, self._owner, self._duration):
            raise self._lost()
        self._last_from(requested_at)

    def load(self) -> Checkpoint | None:
        """Return the checkpoint that was last saved; see `CheckpointStore.load`."""
        return self._store.load(self.name)

    def save(self, checkpoint: Checkpoint) -> None:
        """Save the checkpoint in the store.

        If the lease is lost, saves nothing and raises LeaseLostError.
        """
        if not self._store.save_as(self._owner, self.name, checkpoint):
            raise self._lost()

    def release(self) -> None:
        """Release the lease, if it is held."""
        self._until = BEGINNING
        self._store.release(self.name, self._owner)

    def _last_from(self, requested_at: Micros) -> None:
        self._until = requested_at + duration_micros(self._duration)

    def _lost(self) -> LeaseLostError:
        self._until = BEGINNING
        name = self.name
        return LeaseLostError(
            f"another consumer took over {name.table}, shard {name.shard}, of application "
            f"{name.application!r}: this one did not renew its lease for "
            f"{self._duration.total_seconds():g} s and can no longer save its position; set a "
            "longer lease if processes may pause that long"
        )
