"""Skips windows without rows, which are not worth a micro-batch.

Spark runs a micro-batch for each new offset, and `processAllAvailable` returns only when there is
none. So before the position moves, the driver reads at most one row of the window from each chunk
of streams. A window found empty has settled, so it is not checked again.

Over an empty log the position still moves occasionally; otherwise a restart would begin far back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cdc_reader._time import BEGINNING
from cdc_reader.reading.fetch import read_tasks
from cdc_reader.reading.ports import LogSource
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.strategy import Strategy
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.planning.plan import StreamSpan, spans
from pyspark_scylla_cdc.planning.streams import Streams

PAUSE = 1_000_000
"""µs between two reads of the cluster's generations."""
MOST_QUERIES = 64
"""Most queries of one check. If a window takes more, the driver does not check; the position moves
in steps that are longer by the same factor.
"""


class Look:
    """Reads one row of each chunk of streams; `source` returns at most one row per task."""

    def __init__(
        self,
        source: LogSource,
        streams: Callable[[int], Streams],
        strategy: Strategy,
        chunk: int,
        in_flight: int,
    ) -> None:
        self._source = source
        self._streams = streams
        self._strategy = strategy
        self._chunk = chunk
        self._in_flight = in_flight
        self._first = 0

    def spans(self, timeline: Timeline, window: Window) -> list[StreamSpan]:
        """The spans of the window."""
        return spans(timeline, window, lambda generation: len(self._streams(generation)))

    def queries(self, parts: Sequence[StreamSpan]) -> int:
        """The number of queries needed to find that `parts` have no rows."""
        if self._strategy is Strategy.RANGES:
            return len(parts)
        return sum(-(-part.streams // self._chunk) for part in parts)

    def finds_row(self, parts: Sequence[StreamSpan]) -> bool:
        """True if there are rows. Begins where the last row was found: a hot stream stays hot."""
        tasks = [task for part in parts for task in self._tasks(part)]
        first = self._first % max(1, len(tasks))
        ordered = tasks[first:] + tasks[:first]
        for number, _ in read_tasks(self._source, ordered, self._in_flight):
            self._first = first + number
            return True
        return False

    def _tasks(self, part: StreamSpan) -> Iterator[Task | RangeTask]:
        streams = self._streams(part.generation)
        if self._strategy is Strategy.RANGES:
            yield streams.range_task(part.window)
        else:
            yield from streams.tasks(part.window, self._chunk)


class Idle:
    """Decides whether a window is worth a micro-batch; times in µs.

    A window of `longest` or more is, even without rows, but not twice in a row: with a trigger of
    that length, `processAllAvailable` would never return. New rows are looked for once `shortest`
    µs of write time have been added. The `generations` are read at most once a second.
    """

    def __init__(
        self,
        look: Callable[[], Look],
        generations: Callable[[], Timeline],
        shortest: int,
        longest: int,
    ) -> None:
        self._make_look = look
        self._look: Look | None = None  # made when needed: readers are pickled before that
        self._generations = generations
        self._shortest = shortest
        self._longest = longest
        self._moved_to = BEGINNING
        self._timeline = Timeline(())
        self._knew = BEGINNING
        self._has_rows = False
        self._begin(BEGINNING)

    def end(self, window: Window) -> int:
        """The end of `window`, which has settled, if it is worth a micro-batch; else its start."""
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

    def _begin(self, position: int) -> None:
        """Forget what is known of the log after this position."""
        self._position = self._empty_until = position
        self._has_rows = False

    def _finds_rows(self, window: Window) -> bool:
        if window.end - self._empty_until < self._shortest:
            return False
        self._know_generations(window.end)
        unseen = Window(self._empty_until, window.end)
        look = self._look = self._look or self._make_look()
        parts = look.spans(self._timeline, unseen)
        if (queries := look.queries(parts)) > MOST_QUERIES:
            return window.length >= min(self._longest, self._shortest * queries // MOST_QUERIES)
        if look.finds_row(parts):
            return True
        self._empty_until = window.end
        return False

    def _know_generations(self, end: int) -> None:
        """Begin again if a new generation appears: it may have rows in a window found empty."""
        if 0 <= end - self._knew < PAUSE:
            return
        timeline = self._generations()
        if timeline != self._timeline:
            self._begin(self._position)
        self._timeline, self._knew = timeline, end
