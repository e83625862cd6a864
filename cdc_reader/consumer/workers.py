"""Threads that deal with items: those of one key by the same thread, in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Workers(Generic[T]):
    """`count` threads that call `work`, which must not raise, until `stopping` is set.

    Nothing bounds the queues: whoever puts items in has to.
    """

    def __init__(self, count: int, work: Callable[[T], None], stopping: threading.Event) -> None:
        self._work = work
        self._stopping = stopping
        self._queues: list[queue.SimpleQueue[T | None]] = [
            queue.SimpleQueue() for _ in range(count)
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(items,), name=f"cdc-worker-{number}")
            for number, items in enumerate(self._queues)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def put(self, key: Hashable, item: T) -> None:
        """Have an item dealt with after all others of its key that were put before."""
        self._queues[hash(key) % len(self._queues)].put(item)

    def join(self) -> None:
        """Wait until each thread has finished what it is at; what is queued still is left."""
        for items in self._queues:
            items.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _run(self, items: queue.SimpleQueue[T | None]) -> None:
        while (item := items.get()) is not None and not self._stopping.is_set():
            self._work(item)
