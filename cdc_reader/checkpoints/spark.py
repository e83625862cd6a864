"""Reads positions from the checkpointLocation of a Spark query with the source `scylla_cdc`.

Spark writes the file `offsets/N` before micro-batch N runs. The file contains a version, metadata,
and a line for each source with the end offset of the micro-batch. Spark writes `commits/N` when the
micro-batch is done.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from cdc_reader.checkpoints.encoding import cursor_from_json
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError
from cdc_reader.reading.cursor import Checkpoint, is_moment

VERSION = 1
"""The version of the offsets that the Spark source writes."""

NAME_FILE = "query_name"
"""The file in which `mirror` stores the name of its query."""


@frozen
class SparkCheckpoint:
    """Reads the progress of a query over `table` from the local directory `folder`.

    The directory may also contain the checkpoints of several copies, as `mirror` stores them.
    Raises CheckpointError if it contains no Spark checkpoint, or one that cannot be read.
    """

    folder: Path
    table: TableName

    @property
    def at(self) -> Path:
        """The directory of the checkpoint itself."""
        own = self.folder / self.table.keyspace / self.table.name
        return own if (own / "metadata").exists() else self.folder

    def names(self) -> list[CheckpointName]:
        """Return the only name, if the query reads the table and has started.

        It is the name that `mirror` stored, otherwise the query's id: Spark stores no names.
        """
        if self._reached() is None:
            return []
        return [CheckpointName(self._query(), self.table)]

    def load(self, _name: CheckpointName) -> Checkpoint | None:
        """Return the position that the query's completed micro-batches have reached."""
        if (offset := self._reached()) is None:
            return None
        try:
            stored = {"ttl": [], **offset, "snapshot": None}
            return cursor_from_json(stored, offset["position"], {})
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._unreadable() from None

    def complete(self) -> Checkpoint | None:
        """Return the position of `load`, or None if a snapshot of the table is not complete there.

        The target of the query then lacks rows that were written before the position.
        """
        offset = self._reached()
        if offset is None or offset.get("snapshot") == "pending" or not self._numbers("commits"):
            return None
        return self.load(CheckpointName("", self.table))

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def _query(self) -> str:
        try:
            stored = self.at / NAME_FILE
            if stored.exists():
                return stored.read_text(encoding="utf-8")
            return str(json.loads((self.at / "metadata").read_text())["id"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._unreadable() from error

    def _reached(self) -> dict[str, Any] | None:
        """Return the offset that the query has reached, or None if it has not started.

        If several of the query's sources read the table, returns the earliest of their offsets.
        """
        return min(self._offsets(), key=lambda offset: int(offset["position"]), default=None)

    def _offsets(self) -> Iterator[dict[str, Any]]:
        """Yield the table's offsets at the end of the newest micro-batch that is done.

        Until the first micro-batch is done, yields the offsets at which that micro-batch began.
        """
        numbers, done = self._numbers("offsets"), max(self._numbers("commits"), default=-1)
        if not numbers:
            return
        finished = [number for number in numbers if number <= done]
        reached = max(finished, default=min(numbers))
        try:
            version, _, first, *rest = (self.at / "offsets" / str(reached)).read_text().splitlines()
            # From version 2 of the file on, each line begins with the name of its source.
            lines = [line if version == "v1" else line.partition(":")[2] for line in (first, *rest)]
            offsets = [_offset(line) for line in lines]
        except (OSError, ValueError) as error:
            raise self._unreadable() from error
        for offset in offsets:
            if offset and offset["table"] == str(self.table):
                self._check_version(offset["version"])
                yield offset if finished else {**offset, "position": _began(offset)}

    def _check_version(self, version: object) -> None:
        if version != VERSION:
            raise CheckpointError(
                f"checkpoints in {self.at}: found version {version}, expected {VERSION}; use the "
                "version of scylla-cdc that wrote them"
            )

    def _numbers(self, folder: str) -> list[int]:
        """Return the numbers of the micro-batches in a directory.

        Checksums and unfinished files are skipped.
        """
        try:
            return [int(file.name) for file in (self.at / folder).iterdir() if file.name.isdigit()]
        except OSError as error:
            if folder == "commits" and isinstance(error, FileNotFoundError):
                return []
            raise self._unreadable() from error

    def _unreadable(self) -> CheckpointError:
        files = [*self.at.glob("*/metadata"), *self.at.glob("*/*/metadata")]
        inside = sorted(str(file.parent) for file in files)
        if inside and not (self.at / "metadata").exists():
            return CheckpointError(
                f"{self.at} has no checkpoint of {self.table}, but those of other copies: "
                f"{', '.join(inside)}"
            )
        return CheckpointError(
            f"{self.at} is not the checkpointLocation of a Spark query: expected a directory with "
            f"'metadata', 'offsets' and 'commits' as Spark writes them{self._beside()}"
        )

    def _beside(self) -> str:
        """Name the checkpoint that `mirror` stores beside a copy, if there is one."""
        usual = self.folder.with_name(f"{self.folder.name}.checkpoint")
        return f"; did you mean {usual}?" if usual.is_dir() else ""


def _began(offset: dict[str, Any]) -> int:
    """Return where the query's first micro-batch began, according to the offset at its end."""
    began: int = offset.get("began", offset["position"])
    return began


def _offset(line: str) -> dict[str, Any] | None:
    """Parse an offset of the source `scylla_cdc`; return None for an offset of another source.

    Raises ValueError for an incomplete object. Other sources may write any text.
    """
    try:
        found = json.loads(line)
    except ValueError:
        if line.startswith("{"):
            raise
        return None
    is_ours = (
        isinstance(found, dict)
        and {"version", "table"} <= found.keys()
        and is_moment(found.get("position"))
        and is_moment(found.get("began", 0))
    )
    return found if is_ours else None
