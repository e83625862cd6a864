"""Tracks which rows of a snapshot are acknowledged, and derives checkpoints.

This module is pure: it uses no I/O, no threads and no clock. A range may be read more than once. A
range is done when all rows of one reading have been delivered and acknowledged. Rows of an
abandoned reading count as outstanding until they are acknowledged, but never complete a range.
"""

from __future__ import annotations

from collections import Counter

from attrs import evolve

from cdc_reader.reading.cursor import Checkpoint, SnapshotProgress
from cdc_reader.reading.snapshot import RangeComplete


class RangeAcknowledgements:
    """Tracks the deliveries of the snapshot that continues from the checkpoint `start`."""

    def __init__(self, start: Checkpoint) -> None:
        self._start = start
        self._progress = start.snapshot or SnapshotProgress(start.position)
        self._outstanding: Counter[int] = Counter()
        self._complete: dict[int, RangeComplete] = {}
        self._has_changed = False

    def deliver(self, reading: int, rows: int = 1) -> None:
        """Register `rows` rows of a reading that are about to be delivered."""
        self._outstanding[reading] += rows

    def complete(self, read: RangeComplete) -> bool:
        """Record that all rows of a reading were delivered; return True if a range is now done."""
        self._complete[read.reading] = read
        return self._advance(read.reading)

    def acknowledge(self, reading: int, rows: int = 1) -> bool:
        """Record that delivered rows of a reading are handled; return True if a range is now done.

        Each row must be recorded only once; the order does not matter.
        """
        self._outstanding[reading] -= rows
        return self._advance(reading)

    def take(self) -> Checkpoint | None:
        """Return the checkpoint to save, or None if it has not changed since the last call."""
        if not self._has_changed:
            return None
        self._has_changed = False
        return evolve(self._start, snapshot=self._progress)

    def _advance(self, reading: int) -> bool:
        if self._outstanding[reading]:
            return False
        del self._outstanding[reading]
        if (read := self._complete.pop(reading, None)) is None:
            return False
        self._progress = self._progress.after(read.tokens, read.rows)
        self._has_changed = True
        return True
