"""Keeps a reader from passing a generation that is only partly published."""

from __future__ import annotations

from collections.abc import Callable, Collection

from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, FOREVER, Micros
from cdc_reader.reading.ports import GenerationSource

log = get_logger(__name__)


class PublicationGate:
    """Finds generations whose streams are stored but whose start is not announced; times in µs.

    A generation that stays unannounced is waited for until `patience` after its start. The cluster
    is queried at most once per `pause`.
    """

    def __init__(
        self, generations: Callable[[], GenerationSource], patience: int, pause: int = 0
    ) -> None:
        self._generations = generations
        self._patience = patience
        self._pause = pause
        self._queried = BEGINNING
        self._pending: frozenset[Micros] = frozenset()

    def limit(self, now: Micros, announced: Collection[Micros] = ()) -> Micros:
        """Return the start of the first such generation not in `announced`; FOREVER if none.

        No reader may pass it.
        """
        if not 0 <= now - self._queried < self._pause:
            self._refresh(announced)
            self._queried = now
        waited_for = (start for start in self._pending if now < start + self._patience)
        return min(waited_for, default=FOREVER)

    def _refresh(self, announced: Collection[Micros]) -> None:
        pending = frozenset(self._generations().unpublished()).difference(announced)
        for start in sorted(pending - self._pending):
            log.info("generation_half_published", start=start)
        self._pending = pending
