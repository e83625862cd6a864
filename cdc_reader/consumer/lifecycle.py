"""Logs that a consumer has started, recovered from an outage, and stopped.

These events are warnings, because by default Python shows no others, and whoever operates a
consumer wants to see them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from cdc_reader._log import get_logger
from cdc_reader._time import format_timestamp
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint

log = get_logger(__name__)


class Lifecycle:
    """The events of one run; `facts` are shown with each of them. Thread-safe."""

    def __init__(
        self, facts: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._facts = facts
        self._clock = clock
        self._lock = threading.Lock()
        self._begins: dict[TableName, str] = {}
        self._unreachable: set[TableName] = set()
        self._since = 0.0

    def begins(self, table: TableName, start: Checkpoint, *, is_saved: bool) -> None:
        """Note where a table is begun: at its saved checkpoint, or at a new one."""
        where = format_timestamp(start.position)
        if start.snapshot is not None:
            text = f"in the snapshot of {where}" if is_saved else "with a snapshot"
        elif is_saved:
            text = f"at its checkpoint, {where}"
        else:
            text = f"without a checkpoint, at {where}"
        self._begins[table] = text

    def started(self, store: object) -> None:
        """Log where each table is begun, and where checkpoints are saved."""
        texts = {*self._begins.values()}
        each = (f"{table} {text}" for table, text in [*self._begins.items()])
        begins = texts.pop() if len(texts) == 1 else "; ".join(each) or "when there is a table"
        log.warning("started", **self._facts, begins=begins, checkpoints=str(store))

    def joined(self, table: TableName) -> None:
        """Log where a table is begun that appeared after the start."""
        facts = {**self._facts, "table": str(table)}
        log.warning("table_found", **facts, begins=self._begins[table])

    def failed(self, table: TableName) -> None:
        """Note that a request for a table failed, and is repeated."""
        with self._lock:
            if not self._unreachable:
                self._since = self._clock()
            self._unreachable.add(table)

    def succeeded(self, table: TableName) -> None:
        """Note that a table was read; log the length of an outage that thereby ends."""
        if table not in self._unreachable:
            return
        with self._lock:
            self._unreachable.discard(table)
            if self._unreachable:
                return
            seconds = round(self._clock() - self._since, 1)
        log.warning("recovered", **self._facts, seconds=seconds)

    def stopped(self, saved: Mapping[TableName, Checkpoint]) -> None:
        """Log which position each table has reached."""
        reached = {format_timestamp(each.position) for each in saved.values()}
        each = (f"{table} {format_timestamp(it.position)}" for table, it in saved.items())
        position = reached.pop() if len(reached) == 1 else "; ".join(each) or "none"
        log.warning("stopped", **self._facts, position=position)


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep consumers from logging these events, for commands that print them."""
    logger = logging.getLogger(__name__)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
