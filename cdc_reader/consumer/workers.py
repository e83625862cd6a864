"""Threads that process items: items of one key in the same thread, in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from cdc_reader.reading.retry import GRACE, Stop, stopped_by

T = TypeVar("T")


class Workers(Generic[T]):
    """`count` threads that call `work`, which must not raise, until `stopping` is set.

    They are daemons, so the interpreter can exit while a handler hangs. The queues are unbounded:
    the caller has to bound the items. `stopping` also ends retries and waits of this package inside
    `work`, after `GRACE`.
    """

    def __init__(self, count: int, work: Callable[[T], None], stopping: Stop) -> None:
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
        """Queue items; each is processed after earlier items of its key."""
        shares: list[list[T]] = [[] for _ in self._queues]
        for item in items:
            shares[hash(key(item)) % len(shares)].append(item)
        for items_of_one, share in zip(self._queues, shares, strict=True):
            if share:
                items_of_one.put(share)

    def join(self) -> None:
        """Wait until each thread has finished its current item; queued items are dropped."""
        for items in self._queues:
            items.put(())
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _run(self, items: queue.SimpleQueue[Sequence[T]]) -> None:
        with stopped_by(self._stopping, GRACE):
            while share := items.get():
                for item in share:
                    if self._stopping.is_set():
                        return
                    self._work(item)
