"""Keeps a micro-batch from passing a generation that is only partly published."""

from __future__ import annotations

from collections.abc import Callable

from cdc_reader._log import get_logger
from cdc_reader._time import FOREVER
from cdc_reader.reading.ports import GenerationSource

log = get_logger(__name__)

PATIENCE = 600_000_000
"""µs to wait for a generation whose streams are stored but whose timestamp is not announced."""
PAUSE = 1_000_000
"""µs between two reads of the cluster's tables."""


class PublicationGate:
    """Finds generations that are stored but not announced; all times in µs."""

    def __init__(self, generations: Callable[[], GenerationSource]) -> None:
        self._generations = generations
        self._looked = -FOREVER
        self._until = FOREVER

    def until(self, now: int) -> int:
        """The start of the first such generation; FOREVER if there is none."""
        if now - self._looked >= PAUSE:
            self._until = self._look(now)
            self._looked = now
        return self._until

    def _look(self, now: int) -> int:
        source = self._generations()
        pending = [start for start in source.unpublished() if now < start + PATIENCE]
        for start in pending:
            log.info("generation_half_published", start=start)
        return min(pending, default=FOREVER)
