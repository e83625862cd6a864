"""The protocols of checkpoint stores, the names of checkpoints, and the owners of leases.

A new store implements `LeasingStore`, or `CheckpointStore` if it cannot support leases. Its methods
may be called from several threads at once, and raise `TransientError` for failures that are worth
retrying. `sqlite` is an example; `encoding` and `marks` pack a checkpoint's parts. A store that may
wait long also has a method ``interrupted_by(interruption)``, which returns the same store with
waits that an `Interruption` ends; `scylla` is an example.

Add a new store in these places, and then run ``make api``:

- the names in ``checkpoints/__init__.py`` and ``cdc_reader/__init__.py``;
- the fixtures of ``test_stores.py`` and ``test_leases.py``, which test what every store must do;
- ``docs/reference/checkpoints.md``;
- `CheckpointPlace.open` in `cli.following`, where the commands open stores, and the type that it
  returns;
- `StatusSource` in `cli.status.state`, which also calls ``names()``: it returns the names of all
  stored checkpoints. No protocol declares it, because only ``scylla-cdc status`` needs it.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from datetime import timedelta
from typing import Protocol, Self, runtime_checkable

from attrs import asdict, evolve, field, frozen

from cdc_reader._time import Micros, format_timestamp
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint, unreadable


@frozen
class CheckpointName:
    """Identifies a checkpoint by application, table and shard, such as ``1/4``.

    Shard ``0/4`` identifies the checkpoint that four shards share: the start of their snapshot.
    """

    application: str
    table: TableName
    shard: str = "1/1"

    @property
    def is_shared(self) -> bool:
        """Whether this name identifies the start that all shards share, not a shard's position."""
        return self.shard.startswith("0/")

    @property
    def shared(self) -> CheckpointName:
        """The name of the checkpoint that the shards share."""
        return evolve(self, shard=f"0/{self.shard.partition('/')[2]}")


@frozen
class Owner:
    """A consumer that may hold a lease.

    `since` is when the owner was created, in µs, according to its own clock.
    """

    token: str = field(repr=False)
    """Unique to this owner, even within its process."""
    host: str
    pid: int
    since: Micros

    @classmethod
    def of_this_process(cls, now: Micros) -> Self:
        """Create an owner that represents this process."""
        return cls(uuid.uuid4().hex, socket.gethostname(), os.getpid(), now)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the output of `to_text`; raise CheckpointError for any other text."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            raise unreadable("owner", text, "an object with token, host, pid and since") from None

    def to_text(self) -> str:
        """Return the text that stores keep for this owner. The text of an owner never changes."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {format_timestamp(self.since)}"


class CheckpointStore(Protocol):
    """A store that keeps checkpoints by name. Each name has only one writer."""

    def load(self, name: CheckpointName) -> Checkpoint | None:
        """Return the checkpoint that was last saved under a name, or None.

        Marks of rows before the checkpoint's position are left out.
        """
        ...

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        """Save the checkpoint atomically; it is durable on return.

        The checkpoint's marks replace the stored marks of the same streams; the marks of other
        streams stay. A stored mark whose rows are all before the position no longer applies, so an
        idle window costs one small write, however many streams there are.
        """
        ...

    def close(self) -> None:
        """Release the store's resources; a later use reopens the store."""
        ...


@runtime_checkable
class LeasingStore(CheckpointStore, Protocol):
    """A store that lets one owner at a time save a checkpoint.

    An owner holds the lease from `acquire` until `release`, or until `duration` has passed since
    its last `acquire` or `renew`, or until its process ends, if the store can tell. Then another
    owner may acquire the lease. From that moment, the
    previous owner can neither renew the lease nor save a checkpoint, not even with a request that
    is already in progress.
    """

    def acquire(self, name: CheckpointName, owner: Owner, duration: timedelta) -> Owner:
        """Acquire the lease if no other owner holds it; return the owner that holds it now."""
        ...

    def renew(self, name: CheckpointName, owner: Owner, duration: timedelta) -> bool:
        """Make the lease end `duration` from now; return False if another owner has acquired it."""
        ...

    def release(self, name: CheckpointName, owner: Owner) -> None:
        """Release the lease, unless another owner has acquired it."""
        ...

    def save_as(self, owner: Owner, name: CheckpointName, checkpoint: Checkpoint) -> bool:
        """Save the checkpoint as `save` does, unless another owner has acquired the lease.

        Returns False, and saves nothing, if another owner has acquired the lease.
        """
        ...
