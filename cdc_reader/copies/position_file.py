"""The file beside a copy that says up to where the log has been applied.

Each commit of the copy records a version. Before the commit, the file gets the position that the
copy will have at this version, and it keeps the position of the version before. Whenever the
process ends, the file therefore has the position of the copy's version.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from attrs import frozen

from cdc_reader.checkpoints.encoding import UNREADABLE, cursor_from_json, cursor_to_json
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError, LeaseHeldError
from cdc_reader.reading.cursor import Checkpoint

_FORMAT = 1


@frozen
class Positions:
    """The position of a copy at its version, and during a commit also that at the next one."""

    copy: str
    """The id of the copy."""
    table: str
    by_version: Mapping[int, Checkpoint]


class PositionFile:
    """The positions of a copy, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def beside(cls, folder: Path) -> Self:
        """Return the file of the copy in a folder, `FOLDER.checkpoint`."""
        return cls(folder.with_name(f"{folder.name}.checkpoint"))

    def __str__(self) -> str:
        return str(self.path)

    def load(self) -> Positions | None:
        """Return what was saved last, or None if there is no file.

        Raises CheckpointError for a file that `save` did not write.
        """
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            if stored["format"] != _FORMAT:
                raise CheckpointError(
                    f"checkpoints in {self}: found version {stored['format']}, expected {_FORMAT}; "
                    "use the version of scylla-cdc that wrote them"
                )
            return _positions(stored)
        except FileNotFoundError:
            return None
        except (OSError, *UNREADABLE):
            raise CheckpointError(
                f"{self} is not the checkpoint of a copy that 'scylla-cdc mirror' keeps: give "
                "another folder for the copy"
            ) from None

    def save(self, positions: Positions) -> None:
        """Replace the file; it is durable on return. Raises CheckpointError if that fails."""
        stored = {
            "format": _FORMAT,
            "copy": positions.copy,
            "table": positions.table,
            "positions": {
                version: {"position": each.position, "cursor": cursor_to_json(each)}
                for version, each in positions.by_version.items()
            },
        }
        try:
            self._replace(json.dumps(stored).encode())
        except OSError as error:
            raise self._unwritable(error) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other process write to the copy within this context, or raise LeaseHeldError.

        The kernel releases the lock when the process ends, however it ends.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = self.path.with_name(f"{self.path.name}-lock").open("ab")
        except OSError as error:
            raise self._unwritable(error) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LeaseHeldError(
                    f"another process keeps the copy of {self} current: stop it, or give another "
                    "folder"
                ) from None
            yield

    def _replace(self, content: bytes) -> None:
        new = self.path.with_name(f"{self.path.name}-new")
        with new.open("wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _unwritable(self, error: OSError) -> CheckpointError:
        why = error.strerror or error
        return CheckpointError(
            f"checkpoints in {self}: {why}; expected a folder for the copy that can be written"
        )


def position_of_copy(path: Path, table: TableName) -> Checkpoint:
    """Return the position of the copy whose positions are in the file at `path`.

    During a commit, the copy can be newer. Raises CheckpointError if the copy is of another table,
    or does not have all rows yet.
    """
    file = PositionFile(path)
    stored = file.load()
    if stored is None or stored.table != str(table):
        raise of_other_table(file, table, "no table" if stored is None else stored.table)
    position = stored.by_version[min(stored.by_version)]
    if position.snapshot is not None:
        raise CheckpointError(
            f"the copy of {path} does not have all rows of {table} yet: let 'scylla-cdc mirror' "
            "complete its snapshot, then compare again"
        )
    return position


def of_other_table(file: PositionFile, table: TableName, found: str) -> CheckpointError:
    """Return the error for a file with the positions of a copy of another table."""
    return CheckpointError(
        f"{file} is of a copy of {found}, and not of {table}: give another folder or checkpoint"
    )


def _positions(stored: Mapping[str, Any]) -> Positions:
    """Parse what `PositionFile.save` stores; raise one of `UNREADABLE` for anything else."""
    table = TableName.parse(stored["table"])
    found = {
        int(version): cursor_from_json(each["cursor"], each["position"], {}, table)
        for version, each in stored["positions"].items()
    }
    if not found:
        raise ValueError("no position")
    return Positions(str(stored["copy"]), stored["table"], found)
