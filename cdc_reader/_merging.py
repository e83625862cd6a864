"""Merges several iterators, each read in its own thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from attrs import frozen

T = TypeVar("T")


@frozen
class _End:
    """The end of a source, and the error that ended it, if any."""

    error: BaseException | None


class Merging(Generic[T]):
    """Merges several sources, each read in its own thread, and keeps the order within each source.

    Sources block while `limit` items are buffered. If one source fails, `stop` is called to end the
    other sources, and the error is raised. Closing the iterator early also stops the sources.
    """

    def __init__(
        self, sources: Sequence[Iterable[T]], limit: int, stop: Callable[[], None]
    ) -> None:
        self._sources = sources
        self._stop = stop
        self._items: queue.Queue[T | _End] = queue.Queue(limit)
        self._left = threading.Event()

    def __iter__(self) -> Iterator[T]:
        threads = [
            threading.Thread(target=self._drain, args=(source,), name="cdc-table", daemon=True)
            for source in self._sources
        ]
        for thread in threads:
            thread.start()
        try:
            yield from self._merged(len(threads))
        finally:
            self._leave(threads)

    def _merged(self, running: int) -> Iterator[T]:
        while running:
            item = self._items.get()
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                running -= 1

    def _drain(self, source: Iterable[T]) -> None:
        end: BaseException | None = None
        try:
            for item in source:
                self._items.put(item)
                if self._left.is_set():
                    break
        except BaseException as error:  # noqa: BLE001 - raised in the thread that iterates
            end = error
        self._items.put(_End(end))

    def _leave(self, threads: Sequence[threading.Thread]) -> None:
        self._left.set()
        self._stop()
        while any(thread.is_alive() for thread in threads):
            try:
                self._items.get(timeout=0.05)  # makes room for a blocked source
            except queue.Empty:
                continue
