"""One table's progress: what is acknowledged, told and saved; from any thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from cdc_reader.acknowledgement import Acknowledgements, Place, Ticket
from cdc_reader.change import Change
from cdc_reader.delivery import Delivery
from cdc_reader.errors import HandlerError
from cdc_reader.ids import TableName
from cdc_reader.logs import get_logger
from cdc_reader.metrics import (
    CHECKPOINTS,
    GENERATION,
    LAG,
    OUTSTANDING,
    QUERIES,
    WINDOW_QUERIES,
    WINDOWS,
    Recorder,
)
from cdc_reader.ports import CheckpointStore, Clock
from cdc_reader.progress import Checkpoint, CheckpointName
from cdc_reader.window import BEGINNING, Window

log = get_logger(__name__)

OnWindow = Callable[[TableName, Window], None]
"""Told once all changes of a window are acknowledged; in order, an empty window's too."""


class TableProgress:
    """Counts a table's changes out and in, and saves what follows; begins where `start` says.

    `wake` is called when a window has been reached, and when all is read and acknowledged.
    """

    def __init__(
        self,
        name: CheckpointName,
        store: CheckpointStore,
        start: Checkpoint,
        *,
        settled: bool,
        clock: Clock,
        recorder: Recorder,
        on_window: OnWindow | None,
        wake: Callable[[], None],
    ) -> None:
        self.name = name
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._on_window = on_window
        self._wake = wake
        self._work = Acknowledgements(start, settled=settled)
        self._windows: deque[Window] = deque()
        self._outstanding = 0
        self._is_read = False
        self._lock, self._telling, self._saving = (threading.Lock() for _ in range(3))

    @property
    def table(self) -> TableName:
        """The base table."""
        return self.name.table

    @property
    def is_finished(self) -> bool:
        """Whether all there is to read has been read and acknowledged."""
        return self._is_read and not self._outstanding

    def deliver(self, changes: list[Change]) -> list[Ticket]:
        """Changes are about to be handed out, in this order; a ticket for each."""
        places = map(_place, changes)
        with self._lock:
            self._outstanding += len(changes)
            return [self._work.deliver(place) for place in places]

    def complete(self, delivery: Delivery) -> None:
        """A window has been read to its end."""
        self._recorder.add(WINDOWS, self.table)
        self._recorder.add(QUERIES, self.table, delivery.queries)
        self._recorder.set(WINDOW_QUERIES, self.table, delivery.queries)
        if delivery.generation is not None:
            self._recorder.set(GENERATION, self.table, delivery.generation / 1_000_000)
        with self._lock:
            self._note(
                self._work.complete(
                    delivery.window, delivery.generation, delivery.swept, late=delivery.late
                )
            )
        self._tell()

    def acknowledge(self, ticket: Ticket) -> int:
        """A change is dealt with; returns how many need not be remembered any more."""
        with self._lock:
            held = self._work.held
            self._note(self._work.acknowledge(ticket))
            self._outstanding -= 1
            freed = held - self._work.held
        self._tell()
        if self.is_finished:
            self._wake()
        return freed

    def finish(self) -> None:
        """All there is to read has been read."""
        self._is_read = True
        self._wake()

    def save(self) -> None:
        """Save what was acknowledged since the last time, if anything was."""
        with self._saving:
            with self._lock:
                checkpoint = self._work.take()
            if checkpoint is None:
                return
            self._store.save(self.name, checkpoint)
        self._recorder.add(CHECKPOINTS, self.table)
        self.show()
        log.debug("checkpoint_saved", table=str(self.table), position=checkpoint.position)

    def show(self) -> None:
        """Tell the gauges how far it is, which changes even while nothing does."""
        self._recorder.set(OUTSTANDING, self.table, self._outstanding)
        if (position := self._work.position) > BEGINNING:
            lag = max(0, self._clock.now() - position)
            self._recorder.set(LAG, self.table, lag / 1_000_000)

    def _note(self, window: Window | None) -> None:
        if window is not None:
            self._windows.append(window)

    def _tell(self) -> None:
        """Tell of windows that were reached; one thread at a time, so in order."""
        while self._windows:
            with self._telling:
                if self._windows:
                    self._reached(self._windows.popleft())

    def _reached(self, window: Window) -> None:
        self._wake()
        if self._on_window is None:
            return
        try:
            self._on_window(self.table, window)
        except Exception as error:
            raise HandlerError(
                f"on_window of {self.table} failed at {window}: {error!r}"
            ) from error


def _place(change: Change) -> Place:
    return Place(change.stream, change.time.bytes, change.seqs, change.is_last)
