"""A checkpoint store that retries transient failures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TypeVar

from cdc_reader._log import get_logger
from cdc_reader.checkpoints.store import CheckpointStore, LeasingStore, Owner
from cdc_reader.errors import LeaseUnsupportedError
from cdc_reader.metrics import CHECKPOINT_RETRIES, Recorder
from cdc_reader.reading.progress import Checkpoint, CheckpointName
from cdc_reader.reading.retry import GRACE, Stop, retries_told, retry, stopped_by

log = get_logger(__name__)
T = TypeVar("T")


class RetryingCheckpoints:
    """A `LeasingStore` that retries calls of `store`, up to `deadline`, until `stop`.

    If the store has no leases, every owner counts as the holder. After a stop each call gets one
    more attempt, within `GRACE`; then it raises StoppedError.
    """

    def __init__(
        self, store: CheckpointStore, deadline: timedelta, recorder: Recorder, stop: Stop
    ) -> None:
        self._store = store
        self._leasing = store if isinstance(store, LeasingStore) else None
        self._deadline = deadline
        self._recorder = recorder
        self._stop = stop
        self.is_broken = False
        """True once the store failed for good: calling it again would only take time."""

    def load(self, name: CheckpointName) -> Checkpoint | None:
        """See `CheckpointStore.load`."""
        return self._retry(name, partial(self._store.load, name))

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        """See `CheckpointStore.save`."""
        self._retry(name, partial(self._store.save, name, checkpoint))

    def acquire(self, name: CheckpointName, owner: Owner, duration: timedelta) -> Owner:
        """See `LeasingStore.acquire`."""
        if self._leasing is None:
            return owner
        try:
            return self._retry(name, partial(self._leasing.acquire, name, owner, duration))
        except LeaseUnsupportedError as error:
            log.warning("no_lease", table=str(name.table), error=str(error))
            self._leasing, self.is_broken = None, False
            return owner

    def renew(self, name: CheckpointName, owner: Owner, duration: timedelta) -> bool:
        """See `LeasingStore.renew`."""
        if self._leasing is None:
            return True
        return self._attempt(name, partial(self._leasing.renew, name, owner, duration))

    def release(self, name: CheckpointName, owner: Owner) -> None:
        """See `LeasingStore.release`."""
        if self._leasing is not None:
            self._attempt(name, partial(self._leasing.release, name, owner))

    def save_as(self, owner: Owner, name: CheckpointName, checkpoint: Checkpoint) -> bool:
        """See `LeasingStore.save_as`."""
        if self._leasing is None:
            self.save(name, checkpoint)
            return True
        return self._retry(name, partial(self._leasing.save_as, owner, name, checkpoint))

    def close(self) -> None:
        """See `CheckpointStore.close`."""
        self._store.close()

    def _retry(self, name: CheckpointName, action: Callable[[], T]) -> T:
        try:
            return self._attempt(name, action)
        except BaseException:
            self.is_broken = True
            raise

    def _attempt(self, name: CheckpointName, action: Callable[[], T]) -> T:
        count = partial(self._recorder.add, CHECKPOINT_RETRIES, name.table)
        with stopped_by(self._stop, GRACE), retries_told(count):
            return retry(action, self._deadline)
