"""A cache of values derived from the texts of statements."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class TextCache(Generic[T]):
    """A thread-safe LRU cache of at most `limit` characters of text, or of one longer text."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """The total length of the texts, in characters."""
        return self._size

    def get(self, key: Hashable) -> T | None:
        """Return the value under this key; None if it is absent."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: T, size: int) -> None:
        """Store a value for a text of `size` characters; evict old values to respect the limit."""
        with self._lock:
            self._drop(key)
            self._kept[key] = value, size
            self._size += size
            while self._size > self._limit and len(self._kept) > 1:
                self._drop(next(iter(self._kept)))

    def pop(self, key: Hashable) -> None:
        """Remove the value under this key, if any."""
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._kept.clear()
            self._size = 0

    def _drop(self, key: Hashable) -> None:
        _, size = self._kept.pop(key, (None, 0))
        self._size -= size
