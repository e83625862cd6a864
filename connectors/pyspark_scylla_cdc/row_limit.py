"""How long a span of write time holds about so many rows: a sample tells."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from cdc_reader.ports import LogSource
from cdc_reader.task import Task
from cdc_reader.window import Window
from pyspark_scylla_cdc.plan import Span
from pyspark_scylla_cdc.streams import Streams

SAMPLE = 64
"""Streams of a generation that are looked at: one query."""
PAGES = 8
"""Pages that are read of them at most; a window with more is cut before it is counted."""
_ROUNDS = 5


class RowLimit:
    """Cuts windows so that they hold about `limit` rows, and last `shortest` µs at least."""

    def __init__(
        self, source: LogSource, streams: Callable[[int], Streams], limit: int, shortest: int
    ) -> None:
        self._source = source
        self._streams = streams
        self._limit = limit
        self._shortest = shortest

    def end(self, window: Window, spans: Callable[[Window], list[Span]]) -> int:
        """Where to end a window that begins like this one; `spans` is what one is made of.

        What is found decides, not what was: rows lie unevenly in time, so a window that was
        cut is looked at again.
        """
        for _ in range(_ROUNDS):
            rows = sum(self._estimate(span) for span in spans(window))
            if rows <= self._limit or window.length <= self._shortest:
                break
            length = max(window.length * self._limit // rows, self._shortest)
            window = Window(window.start, window.start + min(length, window.length - 1))
        return window.end

    def _estimate(self, span: Span) -> int:
        """About how many rows a whole generation has in a window."""
        streams = self._streams(span.generation)
        sample = streams.sample(SAMPLE)
        (task,) = sample.tasks(span.window, SAMPLE)
        return self._count(task) * len(streams) // len(sample)

    def _count(self, task: Task) -> int:
        return sum(batch.num_rows for batch in islice(self._source.read(task), PAGES))
