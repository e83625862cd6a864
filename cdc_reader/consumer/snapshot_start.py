"""Decides where a consumer's snapshot begins; shards agree on it through their common store."""

from __future__ import annotations

from collections.abc import Callable

from cdc_reader._time import SteadyClock, SystemClock
from cdc_reader.checkpoints.lease import Lease
from cdc_reader.checkpoints.store import CheckpointName, LeasingStore, Owner
from cdc_reader.consumer.config import ConsumerConfig
from cdc_reader.errors import StoppedError
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.retry import Stop

_PAUSE = 0.1
"""Seconds between attempts to acquire the lease, which other shards hold only briefly."""


def snapshot_start(
    name: CheckpointName,
    store: LeasingStore,
    config: ConsumerConfig,
    stop: Stop,
    begin: Callable[[], Checkpoint],
) -> Checkpoint:
    """Return the common start of all shards' snapshots, which the first shard saves.

    No change is lost even if the store has no leases. Each shard calls `begin` before it looks for
    a saved start, so the position that it saves was determined before any shard reads a row.
    """
    begun = begin()
    owner = Owner.of_this_process(SystemClock().now())
    lease = Lease(store, name.shared, owner, config.lease, SteadyClock())
    while lease.acquire() is not None:
        if stop.wait(_PAUSE):
            raise StoppedError("stopped while other shards began their snapshot")
    try:
        if lease.load() is None:
            lease.save(begun)
        return lease.load() or begun
    finally:
        lease.release()
