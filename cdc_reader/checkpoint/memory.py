"""Checkpoints for as long as the process lasts."""

from __future__ import annotations

import threading

from attrs import evolve

from cdc_reader.checkpoint.living import living
from cdc_reader.progress import Checkpoint, CheckpointName


class MemoryCheckpoints:
    """A `CheckpointStore` in memory: for tests, and for those who always begin anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[CheckpointName, Checkpoint] = {}

    def load(self, name: CheckpointName) -> Checkpoint | None:
        """See `CheckpointStore.load`."""
        with self._lock:
            kept = self._kept.get(name)
        return kept and evolve(kept, marks=living(kept.marks, kept.position))

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        """See `CheckpointStore.save`."""
        with self._lock:
            before = self._kept.get(name)
            marks = {**(before.marks if before else {}), **checkpoint.marks}
            alive = {s: mark for s, mark in marks.items() if mark.reaches(checkpoint.position)}
            self._kept[name] = evolve(checkpoint, marks=alive)

    def close(self) -> None:
        """Nothing is held but memory; what was saved stays."""
