"""Counts, in each context, how long it waited and how often a node was overloaded.

A context is a thread, a task, or a step of a generator. Readers adapt to these numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
def waiting() -> Iterator[None]:
    """Count the time spent in this block as waiting."""
    began = time.monotonic()
    try:
        yield
    finally:
        _waited.set(_waited.get() + time.monotonic() - began)
