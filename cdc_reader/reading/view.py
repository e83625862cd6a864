"""What a reader sees of its log's generations: those announced, and those that it waits for."""

from __future__ import annotations

from collections.abc import Callable, Collection

from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, FOREVER, Clock, Micros, format_timestamp
from cdc_reader.reading import tuning
from cdc_reader.reading.advance import View, written_before
from cdc_reader.reading.ports import GenerationSource
from cdc_reader.reading.retry import Stop, sleep
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window

log = get_logger(__name__)


class Views:
    """Makes the views of one reader; what was seen stays seen.

    The first view is that of all nodes, and the others ask one node each, in turn.

    What is stored later begins later, unless it began before it was stored: then it is announced
    late, and read from its start. So unannounced generations are looked for at most once in each
    `pause` (µs).
    """

    def __init__(self, generations: Callable[[], GenerationSource], pause: int = 0) -> None:
        self._generations = generations
        self._gate = PublicationGate(generations, pause)
        self.seen = Timeline(())
        """The generations announced, as far as they were seen."""
        self._seen_at = BEGINNING

    def next(self, moment: Micros, *, of_all: bool = False) -> View:
        """Return the view as of `moment` (µs), for which all nodes are asked if `of_all` is True.

        Otherwise, what other tables asked for since `moment` may be used.
        """
        visible = self.visible(moment, of_all=of_all)
        return View(moment, visible, self._gate.limit(moment, visible.starts))

    def visible(self, moment: Micros, *, of_all: bool = False) -> Timeline:
        """Return the announced generations as of `moment` (µs); see `next`."""
        is_first = not self.seen.starts
        starts = self._generations().timestamps(moment, of_all=of_all or is_first)
        # A node that lags lacks the newest. The server removes the oldest, for which one stands.
        since = max(sorted(starts)[:2], default=BEGINNING)
        visible = Timeline((*starts, *(s for s in self.seen.starts if s > since)))
        for start in sorted(set(visible.starts) - set(self.seen.starts)):
            log.info("generation_found", start=start)
        self.seen, self._seen_at = visible, moment
        return visible

    def recent(self, moment: Micros, age: int) -> Timeline:
        """Return the announced generations as they were at most `age` µs before `moment`."""
        if 0 <= moment - self._seen_at < age:
            return self.seen
        return self.visible(moment)


def _span(start: Micros, until: Micros) -> dict[str, str]:
    return {"start": format_timestamp(start), "until": format_timestamp(until)}


class PublicationGate:
    """Finds generations whose streams are stored but whose start is not announced yet.

    Readers wait for an unannounced generation until `PUBLICATION_WAIT` after its start. The cluster
    is queried at most once per `pause` (µs).
    """

    def __init__(self, generations: Callable[[], GenerationSource], pause: int = 0) -> None:
        self._generations = generations
        self._patience = tuning.PUBLICATION_WAIT
        self._pause = pause
        self._queried = BEGINNING
        self._pending: frozenset[Micros] = frozenset()

    def limit(self, now: Micros, announced: Collection[Micros] = ()) -> Micros:
        """Return the start of the first unannounced generation to wait for, or FOREVER.

        No reader may read past this time.
        """
        if not 0 <= now - self._queried < self._pause:
            self._refresh(now)
            self._queried = now
        self._pending = self._pending.difference(announced)
        waited_for = (start for start in self._pending if now < start + self._patience)
        return min(waited_for, default=FOREVER)

    def wait(self, window: Window, clock: Clock, stop: Stop) -> None:
        """Wait for unannounced generations that may contain rows of `window`.

        The caller must read the generations afterwards. Logs a warning if rows may be missing
        because a generation is still unannounced. Raises StoppedError if `stop` is set.
        """
        warned_of = FOREVER
        while (start := self.limit(now := clock.now())) < min(window.end, written_before(now)):
            until = start + self._patience
            if start != warned_of:
                log.warning("read_waits_for_generation", **_span(start, until))
            warned_of = start
            sleep(clock, min(tuning.SETTLE_INTERVAL, until - now), stop)
        if self._pending:
            self._warn_of_missing(Window(window.start, min(window.end, written_before(now))))

    def _warn_of_missing(self, window: Window) -> None:
        """Warn about the parts of `window` in which unannounced generations are in force."""
        timeline = Timeline((*self._generations().timestamps(), *self._pending))
        for operates in timeline.touched(window):
            if operates.start in self._pending:
                missing = operates.intersect(window)
                log.warning("generation_not_announced", **_span(missing.start, missing.end))

    def _refresh(self, now: Micros) -> None:
        pending = frozenset(self._generations().unpublished(now))
        for start in sorted(pending - self._pending):
            log.info("generation_half_published", start=start)
        self._pending = pending
