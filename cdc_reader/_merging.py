"""Merges several iterators, each read in its own thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from attrs import frozen

T = TypeVar("T")


@frozen
class _End:
    """The end of a source, and the error that ended it, if any."""

    error: BaseException | None = None


def merged(sources: Sequence[Iterable[T]], limit: int, stop: Callable[[], None]) -> Iterator[T]:
    """Merge several sources, each read in its own thread, and keep the order within each source.

    Sources block while `limit` items are buffered. If one source fails, `stop` is called to end the
    other sources, and the error is raised. Closing the iterator early also stops the sources.
    """
    items, left = queue.Queue[T | _End](limit), threading.Event()

    def drain(source: Iterable[T]) -> None:
        end = _End()
        try:
            for item in source:
                items.put(item)
                if left.is_set():
                    break
        except BaseException as error:  # noqa: BLE001 - raised in the thread that iterates
            end = _End(error)
        items.put(end)

    threads = [
        threading.Thread(target=drain, args=(source,), name="cdc-table", daemon=True)
        for source in sources
    ]
    for thread in threads:
        thread.start()
    try:
        yield from _until_all_end(items, len(threads))
    finally:
        left.set()
        stop()
        while any(thread.is_alive() for thread in threads):
            with suppress(queue.Empty):
                items.get(timeout=0.05)  # makes room for a blocked source


def _until_all_end(items: queue.Queue[T | _End], running: int) -> Iterator[T]:
    while running:
        item = items.get()
        if not isinstance(item, _End):
            yield item
        elif item.error is not None:
            raise item.error
        else:
            running -= 1
