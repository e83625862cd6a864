"""Threads that deal with items: those of one key by the same thread, in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Workers(Generic[T]):
    """`count` threads that call `work`, which must not raise, until `stopping` is set.

    They are daemons, so that an interpreter need not wait for a handler that hangs. Nothing
    bounds the queues: whoever puts items in has to.
    """

    def __init__(self, count: int, work: Callable[[T], None], stopping: threading.Event) -> None:
        self._work = work
        self._stopping = stopping
        self._queues: list[queue.SimpleQueue[Sequence[T]]] = [
            queue.SimpleQueue() for _ in range(count)
        ]
        self._threads = [
            threading.Thread(
                target=self._run, args=(items,), name=f"cdc-worker-{number}", daemon=True
            )
            for number, items in enumerate(self._queues)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def put(self, items: Iterable[T], key: Callable[[T], Hashable]) -> None:
        """Have each item dealt with after all others of its key that were put before."""
        shares: list[list[T]] = [[] for _ in self._queues]
        for item in items:
            shares[hash(key(item)) % len(shares)].append(item)
        for items_of_one, share in zip(self._queues, shares, strict=True):
            if share:
                items_of_one.put(share)

    def join(self) -> None:
        """Wait until each thread has finished what it is at; what is queued still is left."""
        for items in self._queues:
            items.put(())
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _run(self, items: queue.SimpleQueue[Sequence[T]]) -> None:
        while share := items.get():
            for item in share:
                if self._stopping.is_set():
                    return
                self._work(item)
