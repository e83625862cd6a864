"""From a window to its tasks, through the generations the cluster has announced."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_reader.generation import Generation, StreamGroup, Timeline
from cdc_reader.logs import get_logger
from cdc_reader.ports import GenerationSource
from cdc_reader.task import Task, plan
from cdc_reader.window import Window

log = get_logger(__name__)


class Planner:
    """Plans windows; keeps what it read of generations, for those never change once visible.

    A window [P, Q) may be planned with the timeline of a `refresh` made at Q or later: only
    then is every generation that begins before Q sure to be in it.
    """

    def __init__(self, source: GenerationSource, chunk_size: int) -> None:
        self._source = source
        self._chunk_size = chunk_size
        self._timeline = Timeline(())
        self._groups: dict[int, Sequence[StreamGroup]] = {}

    @property
    def timeline(self) -> Timeline:
        """The generations seen by the last `refresh`."""
        return self._timeline

    def refresh(self) -> Timeline:
        """Ask the cluster for its generations again."""
        seen = Timeline(tuple(self._source.timestamps()))
        for start in sorted(set(seen.starts) - set(self._timeline.starts)):
            log.info("generation_found", start=start)
        self._timeline = seen
        return seen

    def plan(self, window: Window) -> list[Task]:
        """The tasks of `window`, by the last timeline; generations it left behind are forgotten."""
        touched = self._timeline.touched(window)
        generations = [Generation(span, self._groups_of(span.start)) for span in touched]
        self._groups = {span.start: self._groups[span.start] for span in touched}
        return plan(generations, window, self._chunk_size)

    def _groups_of(self, start: int) -> Sequence[StreamGroup]:
        if start not in self._groups:
            groups = self._source.groups(start)
            if not groups:
                log.warning("generation_without_streams", start=start)
            self._groups[start] = groups
        return self._groups[start]
