"""Skips windows without rows, which are not worth a micro-batch.

Spark runs a micro-batch for each new offset, and `processAllAvailable` returns only when there are
no new offsets. Therefore, before the position moves, the driver reads at most one row of the window
from each chunk of streams. A window found empty has settled, so it is not checked again.

If the log stays empty, the position still advances from time to time, so that a restarted query
does not have to start far back in the log.
"""

from __future__ import annotations

from collections.abc import Callable

from cdc_reader._time import BEGINNING, Micros
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.streaming.row_probe import RowProbe

GENERATIONS_INTERVAL = 1_000_000
"""µs between two reads of the cluster's generations."""
MOST_QUERIES = 64
"""The maximum number of queries of one check.

If the check of a window would take more queries, the driver does not check the window. The position
then advances in steps whose length is in proportion to the number of queries: `STEP` for each
`MOST_QUERIES`, but at most `longest`.
"""
STEP = 1_000_000


class Idle:
    """Decides whether a window is worth a micro-batch; times in µs.

    A window of `longest` or more is worth a micro-batch even without rows, but not directly after
    another such window. Without this exception, `processAllAvailable` would never return if the
    trigger interval had that length. While no rows are found, the driver checks again each time the
    window has grown by `step`. The `generations` are read at most once a second.
    """

    def __init__(
        self,
        probe: Callable[[], RowProbe],
        generations: Callable[[], Timeline],
        step: int,
        longest: int,
    ) -> None:
        self._make_probe = probe
        self._probe: RowProbe | None = None  # created on first use, after the reader was pickled
        self._generations = generations
        self._step = step
        self._longest = longest
        self._moved_to = BEGINNING
        self._timeline = Timeline(())
        self._generations_read_at = BEGINNING
        self._has_rows = False
        self._begin(BEGINNING)

    def end(self, window: Window) -> Micros:
        """Return the settled window's end if it is worth a micro-batch; otherwise its start."""
        if window.length >= self._longest and window.start != self._moved_to:
            self._moved_to = window.end
            return window.end
        if window.start != self._position:
            self._begin(window.start)
        if not self._has_rows:
            self._has_rows = self._finds_rows(window)
        if self._has_rows:
            return window.end
        self._moved_to = BEGINNING
        return window.start

    def _begin(self, position: Micros) -> None:
        """Discard all findings about the log after this position."""
        self._position = self._empty_until = position
        self._has_rows = False

    def _finds_rows(self, window: Window) -> bool:
        if window.end - self._empty_until < self._step:
            return False
        self._refresh_generations(window.end)
        unseen = Window(self._empty_until, window.end)
        probe = self._probe = self._probe or self._make_probe()
        parts = probe.spans(self._timeline, unseen)
        if (queries := probe.queries(parts)) > MOST_QUERIES:
            return window.length >= min(self._longest, STEP * queries // MOST_QUERIES)
        if probe.finds_row(parts):
            return True
        self._empty_until = window.end
        return False

    def _refresh_generations(self, end: Micros) -> None:
        """Discard the findings after a new generation, which may have rows in checked windows."""
        if 0 <= end - self._generations_read_at < GENERATIONS_INTERVAL:
            return
        timeline = self._generations()
        if timeline != self._timeline:
            self._begin(self._position)
        self._timeline, self._generations_read_at = timeline, end
