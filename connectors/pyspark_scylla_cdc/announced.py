"""How far generations are known: a micro-batch must not pass one that is only half published."""

from __future__ import annotations

from collections.abc import Callable

from cdc_reader.logs import get_logger
from cdc_reader.ports import GenerationSource
from cdc_reader.window import FOREVER

log = get_logger(__name__)

PATIENCE = 600_000_000
"""µs for which a generation is waited for whose streams are written and which no one announces."""
PAUSE = 1_000_000
"""µs between two looks at the cluster's tables."""


class Announced:
    """Looks for generations that are written down and not announced; all times in µs."""

    def __init__(self, generations: Callable[[], GenerationSource]) -> None:
        self._generations = generations
        self._looked = -FOREVER
        self._until = FOREVER

    def until(self, now: int) -> int:
        """Where the first of them begins; FOREVER if there is none."""
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
