"""The leases of a consumer, one per table: acquires, renews and releases them."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from cdc_reader._log import get_logger
from cdc_reader._time import SteadyClock, SystemClock
from cdc_reader.checkpoints.lease import Lease
from cdc_reader.checkpoints.store import LeasingStore, Owner
from cdc_reader.consumer.config import ConsumerConfig, OnHeld
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CdcError, LeaseHeldError, StoppedError
from cdc_reader.reading.progress import CheckpointName

log = get_logger(__name__)

_LOOK_AGAIN = 2.0
"""Most seconds between attempts at a lease that another consumer holds."""
_UNSURE = 0.1
"""Seconds between checks of a lease that is about to be renewed."""


class Leases:
    """The leases on checkpoints, by table; `stopping` ends the wait for them.

    They last by a clock that cannot be set back, even if the log is read by another.
    """

    def __init__(
        self,
        names: Iterable[CheckpointName],
        store: LeasingStore,
        config: ConsumerConfig,
        stopping: threading.Event,
    ) -> None:
        self._names = sorted(names, key=lambda name: str(name.table))
        self._store = store
        self._config = config
        self._interval = config.lease.total_seconds() / 3
        self._stopping = stopping
        self._leases: dict[TableName, Lease] = {}
        self._due = threading.Event()
        self._has_ended = False

    def __getitem__(self, table: TableName) -> Lease:
        return self._leases[table]

    def acquire(self) -> bool:
        """Acquire all leases; False if a stop came during the wait for one.

        Raises LeaseHeldError if the configuration says not to wait. All consumers acquire leases in
        the same order, so two never wait for each other.
        """
        clock, owner = SteadyClock(), Owner.of_this_process(SystemClock().now())
        for name in self._names:
            lease = Lease(self._store, name, owner, self._config.lease, clock)
            if not self._acquire(lease):
                return False
            self._leases[name.table] = lease
        return True

    def keep(self) -> None:
        """Renew the leases until `end`; raises LeaseLostError once one is lost."""
        while True:
            self._due.wait(self._interval)
            self._due.clear()
            if self._has_ended:
                return
            try:
                for lease in self._leases.values():
                    lease.renew()
            except StoppedError:  # what is left of the lease is enough to end
                return

    def wait_for(self, lease: Lease) -> bool:
        """Wait until the lease is certainly held; False on stop.

        So a process that stood still, or cannot reach the store, hands out nothing.
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
        """Give the leases up; one that cannot be released runs out."""
        for lease in self._leases.values():
            try:
                lease.release()
            except CdcError as error:
                log.warning("lease_not_released", table=str(lease.name.table), error=str(error))
                if isinstance(error, StoppedError):
                    return  # the store does not answer, and would be waited for table by table

    def _acquire(self, lease: Lease) -> bool:
        told: Owner | None = None
        while (holder := lease.acquire()) is not None:
            if holder != told:
                self._tell(lease.name, holder)
                told = holder
            if self._stopping.wait(min(self._interval, _LOOK_AGAIN)):
                return False
            for held in self._leases.values():
                held.renew()
        return True

    def _tell(self, name: CheckpointName, holder: Owner) -> None:
        if self._config.on_held == OnHeld.FAIL:
            raise LeaseHeldError(
                f"{name.table}, shard {name.shard}, is followed as application "
                f"{name.application!r} already: {holder}; end that one, give another application "
                "name, or set on_held to 'wait'"
            )
        log.warning(
            "waiting_for_another_consumer",
            application=name.application,
            table=str(name.table),
            shard=name.shard,
            holder=str(holder),
        )
