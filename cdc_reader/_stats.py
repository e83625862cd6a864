"""Statistics of the reads in a context: a thread, a task, or a step of a generator.

Apart from statistics that are recorded on request, each context counts how long it has waited, and
how often a node was overloaded, so that readers can adapt.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from attrs import define, fields

T = TypeVar("T")


@define
class ReadStats:
    """The cost of a read, its retries, and the bad records it found; see `recorded_in`."""

    queries: int = 0
    """Queries sent, not counting requests for further pages."""
    retries: int = 0
    """Requests that were sent again after a failure."""
    waited: float = 0.0
    """Seconds spent idle, waiting for responses or pausing before retries."""
    bad_records: int = 0
    """Rows that could not be converted, and were skipped or quarantined."""

    def __add__(self, other: ReadStats) -> ReadStats:
        names = [field.name for field in fields(ReadStats)]
        return ReadStats(*(getattr(self, name) + getattr(other, name) for name in names))


_current: ContextVar[ReadStats | None] = ContextVar("stats", default=None)
_waited: ContextVar[float] = ContextVar("waited", default=0.0)
_overloads: ContextVar[int] = ContextVar("overloads", default=0)


def waited() -> float:
    """Return the seconds that this context has been waiting for responses, in total."""
    return _waited.get()


def overloads() -> int:
    """Return how often a node has told this context that it is overloaded."""
    return _overloads.get()


def count_overload() -> None:
    """Record that a node is overloaded."""
    _overloads.set(_overloads.get() + 1)


@contextmanager
def recorded_in(stats: ReadStats) -> Iterator[None]:
    """Add the statistics of reads within this context to `stats`."""
    token = _current.set(stats)
    try:
        yield
    finally:
        _current.reset(token)


def each_recorded_in(stats: ReadStats, items: Iterator[T]) -> Iterator[T]:
    """Yield the items, and add the statistics of producing each item to `stats`.

    The context is left before each `yield`, because a generator shares its caller's context.
    """
    while True:
        with recorded_in(stats):
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def count(*, queries: int = 0, retries: int = 0, bad_records: int = 0) -> None:
    """Add the given numbers to the statistics of this context, if it has any."""
    if (stats := _current.get()) is not None:
        stats.queries += queries
        stats.retries += retries
        stats.bad_records += bad_records


@contextmanager
def waiting() -> Iterator[None]:
    """Count the time spent in this block as waiting."""
    began = time.monotonic()
    try:
        yield
    finally:
        took = time.monotonic() - began
        _waited.set(_waited.get() + took)
        if (stats := _current.get()) is not None:
            stats.waited += took
