"""Locks of the kernel that show which owners of leases in an SQLite file are alive.

Each owner locks one byte of the file `PATH-lock`, and the kernel releases the lock when the owner's
process ends, however it ends. A process that is forked meanwhile does not inherit the locks. The
locks belong to open file descriptions, because two consumers of one process must exclude each
other, and because closing another descriptor of the file must not release a lock. Only Linux has
these locks; elsewhere, an owner counts as alive until its lease expires.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import zlib
from io import FileIO
from pathlib import Path
from weakref import WeakSet

from cdc_reader.checkpoints.store import Owner


class OwnerLocks:
    """The locks of this process's owners, in the file beside `database`; not thread-safe.

    Raises OSError if the file cannot be written, or its file system has no locks.
    """

    def __init__(self, database: Path) -> None:
        self._path = f"{database}-lock"
        self._file: FileIO | None = None
        _locks.add(self)

    def hold(self, owner: Owner) -> None:
        """Lock the owner's byte until `close`, or until the process ends."""
        if self._file is None:
            self._file = FileIO(self._path, "ab+")
        _lock(self._file, owner)

    def has_ended(self, owner: Owner) -> bool:
        """Whether no process holds the owner's lock anymore."""
        try:
            with FileIO(self._path, "rb+") as file:  # with its own open file description
                return _lock(file, owner)
        except FileNotFoundError:  # the file was deleted: the lease expires
            return False

    def close(self) -> None:
        """Release the locks."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        """Release the locks of a store that was never closed."""
        self.close()


def _leave_to_parent() -> None:
    for locks in [*_locks]:
        locks.close()


_locks: WeakSet[OwnerLocks] = WeakSet()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_leave_to_parent)


def _lock(file: FileIO, owner: Owner) -> bool:
    """Lock the owner's byte; return False if another description of the file has locked it."""
    if sys.platform != "linux":
        return False
    byte = zlib.crc32(owner.token.encode())
    request = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, request)
    except BlockingIOError:
        return False
    return True
