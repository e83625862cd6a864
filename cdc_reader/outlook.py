"""What is known of the log at a moment: how far it is settled, and of which generations."""

from __future__ import annotations

from cdc_reader.config import DataLossMode, ReadConfig
from cdc_reader.duration import micros
from cdc_reader.errors import DataLossError
from cdc_reader.logs import get_logger
from cdc_reader.planner import Planner
from cdc_reader.ports import GenerationSource
from cdc_reader.progress import Checkpoint
from cdc_reader.timestamp import format_timestamp
from cdc_reader.window import BEGINNING, Window

log = get_logger(__name__)

_GRACE = 60_000_000
"""µs by which rows may outlive the log's TTL, counted from their write times: it begins when
they arrive, and an expired row is no loss if it was never there."""


class Outlook:
    """Looks at the generations before each pass; keeps which ones are accounted for."""

    def __init__(
        self, source: GenerationSource, planner: Planner, config: ReadConfig, start: Checkpoint
    ) -> None:
        self.oldest = BEGINNING
        """The earliest position worth reading from, in µs."""
        self._source = source
        self._planner = planner
        self._config = config
        self._newest_at_start = start.generation
        self._accounted: set[int] | None = None
        self._waiting: set[int] = set()
        self._is_lost = False

    @property
    def newest(self) -> int | None:
        """The start of the newest generation that is accounted for."""
        return max(self._accounted or (), default=None)

    def look(self, now: int, position: int, ttl: int) -> int:
        """How far the log is settled; BEGINNING while no generation is announced.

        The clock was read, at `now`, before the generations are: every one that begins before
        the horizon had the confidence window to become visible. `ttl` is the log's, in seconds;
        DataLossError if rows from `position` on expired, and that is to be an error.
        """
        starts = self._planner.refresh().starts
        if not starts:
            return BEGINNING
        expired = now - ttl * 1_000_000 - _GRACE if ttl else BEGINNING
        self._account(starts, position, expired)
        self.oldest = max(starts[0], expired) if position == BEGINNING else position
        return min(now - micros(self._config.confidence_window), self._unannounced(now, starts))

    def missed(self, position: int) -> list[Window]:
        """The spans of generations that turned up with `position` past their beginning.

        They count as accounted for from then on.
        """
        spans = list(self._planner.timeline.operating())
        accounted = self._accounted or set()
        self._accounted = accounted | {span.start for span in spans}
        return [span for span in spans if span.start not in accounted and span.start < position]

    def _account(self, starts: tuple[int, ...], position: int, expired: int) -> None:
        """At first, what a checkpoint knew is accounted for; without one, all that there is."""
        newest = self._newest_at_start
        is_first = self._accounted is None
        if self._accounted is None:
            self._accounted = {s for s in starts if newest is None or s <= newest}
        if position == BEGINNING or (is_first and newest is None):
            return
        lost = Window(position, expired)
        if not lost.is_empty and not self._is_lost:
            self._say_lost(lost)
        self._is_lost = not lost.is_empty

    def _say_lost(self, lost: Window) -> None:
        if self._config.data_loss == DataLossMode.FAIL:
            raise DataLossError(
                f"rows written in {lost} were gone before they were read; expected them to be "
                "read within the log's TTL: start anew, or set data_loss to 'warn' to go on"
            )
        log.warning("rows_lost", start=format_timestamp(lost.start), end=format_timestamp(lost.end))

    def _unannounced(self, now: int, starts: tuple[int, ...]) -> int:
        """Where to wait for a generation that is written down and not announced yet."""
        patience = micros(self._config.publication_wait)
        pending = sorted(set(self._source.unpublished()) - set(starts))
        for start in set(pending) - self._waiting:
            log.info("generation_half_published", start=start)
        self._waiting = set(pending)
        return min((s for s in pending if now < s + patience), default=now)
