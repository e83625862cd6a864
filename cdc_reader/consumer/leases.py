"""The consumer's access to its checkpoint store: retried calls, and saves under a lease."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import TypeVar, cast

from cdc_reader._log import get_logger
from cdc_reader._time import SteadyClock, SystemClock
from cdc_reader.checkpoints.lease import Lease
from cdc_reader.checkpoints.store import CheckpointName, CheckpointStore, LeasingStore, Owner
from cdc_reader.consumer.config import ConsumerConfig, OnHeld
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CdcError, LeaseHeldError, LeaseUnsupportedError, StoppedError
from cdc_reader.metrics import CHECKPOINT_RETRIES, Recorder
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.retry import GRACE, Interruption, Stop, interrupted, retry

log = get_logger(__name__)

T = TypeVar("T")

_LONGEST_PAUSE = 2.0
"""The longest pause, in seconds, between attempts to acquire a lease that is held elsewhere."""
_UNSURE = 0.1
"""Seconds between checks of a lease that is about to be renewed."""


class RetryingCheckpoints:
    """A `LeasingStore` that retries failed calls of `store`, for up to `deadline` or until `stop`.

    If the store has no leases, every owner counts as the holder. After a stop, each call gets one
    more attempt within `GRACE`, and then raises StoppedError.
    """

    def __init__(
        self, store: CheckpointStore, deadline: timedelta, recorder: Recorder, stop: Stop
    ) -> None:
        self._store = store
        self._has_leases = isinstance(store, LeasingStore)
        self._deadline = deadline
        self._recorder = recorder
        self._stop = stop
        self.is_broken = False
        """True if the store has failed permanently, so that calling it again is pointless."""

    def load(self, name: CheckpointName) -> Checkpoint | None:
        """See `CheckpointStore.load`."""
        return self._retry(name, lambda store: store.load(name))

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        """See `CheckpointStore.save`."""
        self._retry(name, lambda store: store.save(name, checkpoint))

    def acquire(self, name: CheckpointName, owner: Owner, duration: timedelta) -> Owner:
        """See `LeasingStore.acquire`."""
        if not self._has_leases:
            return owner
        try:
            return self._retry(name, lambda store: store.acquire(name, owner, duration))
        except LeaseUnsupportedError as error:
            log.warning("no_lease", table=str(name.table), error=str(error))
            self._has_leases = self.is_broken = False
            return owner

    def renew(self, name: CheckpointName, owner: Owner, duration: timedelta) -> bool:
        """See `LeasingStore.renew`."""
        if not self._has_leases:
            return True
        return self._attempt(name, lambda store: store.renew(name, owner, duration))

    def release(self, name: CheckpointName, owner: Owner) -> None:
        """See `LeasingStore.release`."""
        if self._has_leases:
            self._attempt(name, lambda store: store.release(name, owner))

    def save_as(self, owner: Owner, name: CheckpointName, checkpoint: Checkpoint) -> bool:
        """See `LeasingStore.save_as`."""
        if not self._has_leases:
            self.save(name, checkpoint)
            return True
        return self._retry(name, lambda store: store.save_as(owner, name, checkpoint))

    def close(self) -> None:
        """See `CheckpointStore.close`."""
        self._store.close()

    def _retry(self, name: CheckpointName, action: Callable[[LeasingStore], T]) -> T:
        try:
            return self._attempt(name, action)
        except BaseException:
            self.is_broken = True
            raise

    def _attempt(self, name: CheckpointName, action: Callable[[LeasingStore], T]) -> T:
        count = partial(self._recorder.add, CHECKPOINT_RETRIES, name.table)
        interruption = Interruption(self._stop, GRACE, count)
        store = cast("LeasingStore", interrupted(self._store, interruption))
        return retry(partial(action, store), self._deadline, interruption)


class Leases:
    """The leases of a consumer, by table. `stopping` ends the wait for a lease.

    Leases are timed by a monotonic clock, even if reading the log uses another clock.
    """

    def __init__(
        self,
        store: LeasingStore,
        config: ConsumerConfig,
        stopping: threading.Event,
    ) -> None:
        self._store = store
        self._owner = Owner.of_this_process(SystemClock().now())
        self._config = config
        self._interval = config.lease.total_seconds() / 3
        self._stopping = stopping
        self._leases: dict[TableName, Lease] = {}
        self._told: dict[TableName, Owner] = {}
        """The holders of other leases, as last reported."""
        self._due = threading.Event()
        self._has_ended = False

    def __getitem__(self, table: TableName) -> Lease:
        return self._leases[table]

    def acquire(self, names: Iterable[CheckpointName]) -> bool:
        """Acquire all of these leases; return False if stopped while waiting for one.

        Raises LeaseHeldError if another consumer holds a lease and the configuration says not to
        wait. All consumers acquire leases in the same order, so no two consumers wait for each
        other.
        """
        for name in sorted(names, key=lambda name: str(name.table)):
            while not self.take(name):
                if self._stopping.wait(min(self._interval, _LONGEST_PAUSE)):
                    return False
                for held in self._all:
                    held.renew()
        return True

    def take(self, name: CheckpointName) -> bool:
        """Acquire a lease without waiting; return False if another consumer holds it.

        Raises LeaseHeldError if the configuration says not to wait.
        """
        if name.table in self._leases:
            return True
        lease = Lease(self._store, name, self._owner, self._config.lease, SteadyClock())
        holder = lease.acquire()
        if holder is None:
            self._leases[name.table] = lease
        elif holder != self._told.get(name.table):
            self._report_holder(name, holder)
            self._told[name.table] = holder
        return holder is None

    def keep(self) -> None:
        """Renew the leases until `end`; raise LeaseLostError if one is lost."""
        while True:
            self._due.wait(self._interval)
            self._due.clear()
            if self._has_ended:
                return
            try:
                for lease in self._all:
                    lease.renew()
            except StoppedError:  # the leases last long enough to shut down
                return

    def wait_for(self, lease: Lease) -> bool:
        """Wait until the lease is certainly held; return False if stopped.

        A process that was suspended, or cannot reach the store, therefore delivers nothing.
        """
        while not lease.is_sure:
            self._due.set()
            if self._stopping.wait(_UNSURE):
                return False
        return True

    def end(self) -> None:
        """Make `keep` return."""
        self._has_ended = True
        self._due.set()

    def release(self) -> None:
        """Release the leases; a lease that cannot be released expires."""
        for lease in self._all:
            try:
                lease.release()
            except CdcError as error:
                log.warning("lease_not_released", table=str(lease.name.table), error=str(error))
                if isinstance(error, StoppedError):
                    return  # the store does not respond: do not wait for it once per table

    @property
    def _all(self) -> list[Lease]:
        """The leases held now; another thread may add to them."""
        return [*self._leases.values()]

    def _report_holder(self, name: CheckpointName, holder: Owner) -> None:
        if self._config.on_held is OnHeld.FAIL:
            raise LeaseHeldError(
                f"{name.table}, shard {name.shard}, is already followed by application "
                f"{name.application!r}: {holder}; stop that consumer, give another application "
                "name, or set on_held to 'wait'"
            )
        log.warning(
            "waiting_for_another_consumer",
            application=name.application,
            table=str(name.table),
            shard=name.shard,
            holder=str(holder),
        )
