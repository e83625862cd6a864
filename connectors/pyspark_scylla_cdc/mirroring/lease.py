"""Leases on targets: a second writer of a copy is refused, and told who writes there.

A lease is a small file, renewed while the copy is maintained. It is not what makes a copy exact: a
target records each micro-batch in the commit of its rows. The lease tells the second writer so at
its start, before Spark stops the first one's query or either of them fails at a commit.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from attrs import asdict, define, field, frozen
from py4j.protocol import Py4JJavaError

from cdc_reader._log import get_logger
from cdc_reader._time import SystemClock, format_timestamp
from cdc_reader.errors import LeaseHeldError, LeaseLostError
from pyspark_scylla_cdc.mirroring.stored_file import StoredFile

log = get_logger(__name__)

LENGTH, RENEWAL = 60.0, 10.0
"""Seconds for which a lease is held, and after which it is renewed."""
_POLL, _TRIES = 0.5, 4
_HELD: set[str] = set()
"""The ids of the leases that this process holds."""


@frozen
class Holder:
    """Who holds a lease: the name of the copy, if any, and the process that maintains it."""

    id: str
    name: str | None
    host: str
    process: int
    until: int = field(converter=int)
    """µs since 1970, by the holder's clock."""

    def __str__(self) -> str:
        who = f"process {self.process} on {self.host}"
        return who if self.name is None else f"{self.name}, in {who}"


@define
class Lease:
    """The lease on a target, in a file of its own, which Spark can write."""

    target: str
    name: str | None
    _file: StoredFile
    _id: str = field(factory=lambda: uuid4().hex, init=False)
    _renewed: float = field(default=0.0, init=False)
    _is_held: bool = field(default=False, init=False)

    def take(self) -> None:
        """Take the lease, waiting for the end of one that nobody renews.

        Raises LeaseHeldError if another writer renews it, or is in this process. If the file cannot
        be read or written, the copy goes on without a lease.
        """
        with self._tolerant():
            found = self._read()
            if found is not None and found.id != self._id and found.until > SystemClock().now():
                self._await_end(found)
            self._write()

    def renew(self) -> None:
        """Renew the lease if it is time; raise LeaseLostError if another writer has taken it."""
        if not self._is_held or time.monotonic() < self._renewed + RENEWAL:
            return
        self._renewed = time.monotonic()
        with self._tolerant():
            found = self._read()
            if found is not None and found.id != self._id:
                self._leave()
                raise LeaseLostError(
                    f"{self.target} is now written by {found}, which found this copy's lease "
                    "ended: this process did not renew it in time"
                )
            self._write()

    def release(self) -> None:
        """Let others write to the target at once."""
        if self._is_held:
            self._leave()
            with self._tolerant():
                found = self._read()
                if found is not None and found.id == self._id:
                    self._file.delete()

    @contextmanager
    def _tolerant(self) -> Iterator[None]:
        """Log errors of the storage: without its lease, a copy is as exact as with it."""
        try:
            yield
        except Py4JJavaError as error:
            reason = str(error.java_exception).partition("\n")[0]
            path = self._file.path
            log.warning("lease_not_written", target=self.target, file=path, reason=reason)

    def _await_end(self, found: Holder) -> None:
        if found.id in _HELD:
            raise self._held(found, "stop() that copy first")
        log.warning("lease_awaited", target=self.target, holder=str(found), seconds=LENGTH)
        end = time.monotonic() + LENGTH
        while (now := self._read()) is not None and now == found and time.monotonic() < end:
            time.sleep(_POLL)
        if now is not None and now != found:
            raise self._held(now, "stop it first, or give another target")

    def _held(self, holder: Holder, remedy: str) -> LeaseHeldError:
        until = format_timestamp(holder.until)
        return LeaseHeldError(
            f"{self.target} is written by {holder}, whose lease lasts until {until} and is "
            f"renewed: {remedy}"
        )

    def _read(self) -> Holder | None:
        """Return the last holder, or None if there is none."""
        for _ in range(_TRIES):
            try:
                text = self._file.text()
                return None if text is None else Holder(**json.loads(text))
            except (ValueError, TypeError):  # half written, or by another version
                time.sleep(_POLL)
        return None

    def _write(self) -> None:
        until = SystemClock().now() + int(LENGTH * 1_000_000)
        holder = Holder(self._id, self.name, socket.gethostname(), os.getpid(), until)
        self._file.write(json.dumps(asdict(holder)))
        self._is_held, self._renewed = True, time.monotonic()
        _HELD.add(self._id)

    def _leave(self) -> None:
        self._is_held = False
        _HELD.discard(self._id)
