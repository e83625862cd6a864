"""Detects whether a process on this machine has ended. Uses `/proc`, which only Linux has."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_BOOT = _PROC / "sys/kernel/random/boot_id"
_ENDED = ("Z", "X", "x")
"""States of a process that has ended but has not been reaped by its parent."""
_STATE, _START = 0, 19
"""Indexes of fields in `/proc/PID/stat`, counted after the name."""


def machine() -> str:
    """Return an id of this machine, its current boot and the pid namespace; empty if unknown."""
    try:
        namespace = (_PROC / "self/ns/pid").readlink()
        return f"{_BOOT.read_text().strip()} {namespace}"
    except OSError:
        return ""


def started(pid: int) -> int:
    """Return when a process started, in ticks since boot; 0 if unknown."""
    fields = _stat(pid)
    return int(fields[_START]) if fields else 0


def has_ended(pid: int, start: int) -> bool:
    """Return True if the process with this pid and start time on this machine has ended.

    Returns False if that is unknown: other users' processes may be hidden.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # the process exists and belongs to another user
        pass
    fields = _stat(pid)
    return bool(fields) and (fields[_STATE] in _ENDED or int(fields[_START]) != start)


def _stat(pid: int) -> list[str]:
    """Return the fields of `/proc/PID/stat` after the process name; empty if unavailable.

    The name ends at the last parenthesis, and may contain spaces.
    """
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
