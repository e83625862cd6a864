"""Merging of several iterators, each read in its own thread."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from cdc_reader._merging import merged


def numbers(source: int, count: int) -> Iterator[tuple[int, int]]:
    """Return the items of one source, in order."""
    return ((source, at) for at in range(count))


def test_every_item_comes_once_and_each_source_in_order() -> None:
    """Each item is yielded once, and the items of each source are in order.

    The order of items from different sources is undefined.
    """
    sources = [numbers(source, 100) for source in range(4)]
    found = list(merged(sources, 3, lambda: None))
    assert sorted(found) == [(source, at) for source in range(4) for at in range(100)]
    for source in range(4):
        assert [at for owner, at in found if owner == source] == list(range(100))


def test_an_error_of_one_source_ends_all() -> None:
    """An error in one source ends the others, and no thread remains."""
    stopped = threading.Event()

    def endless() -> Iterator[int]:
        return itertools.takewhile(lambda _: not stopped.is_set(), itertools.count())

    def failing() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    threads = threading.active_count()
    with pytest.raises(OSError, match="gone"):
        list(merged([endless(), failing()], 2, stopped.set))
    assert threading.active_count() == threads


def test_leaving_early_stops_the_sources() -> None:
    """Closing the iterator early stops the sources at once."""
    stopped = threading.Event()
    sources = [
        itertools.takewhile(lambda _: not stopped.is_set(), itertools.count()) for _ in range(2)
    ]
    threads = threading.active_count()
    items = merged(sources, 2, stopped.set)
    next(items)
    items.close()  # type: ignore[attr-defined]  # it is a generator
    assert stopped.is_set()
    assert threading.active_count() == threads
