"""How a generation's streams are cut into queries, and how the cut follows what is found.

A query costs much the same whether it finds nothing in one stream or in sixty-four, so
chunks are as large as they may be. A chunk that fills pages is read page after page, while
other queries of the window are long done: so it is split. Chunks that fell quiet are joined
again. The order of the streams never changes, only where it is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

_FULL, _QUIET = 2.0, 0.25
"""Pages: from how many on a chunk is split, and up to how many two are joined."""


class Chunking(Generic[T]):
    """Items in their order (streams, or stream groups), cut into runs of at most `limit`."""

    def __init__(self, items: Sequence[T], limit: int) -> None:
        if limit < 1:
            raise ValueError(f"chunk limit {limit}: expected at least 1")
        self._limit = limit
        self._chunks = [tuple(items[at : at + limit]) for at in range(0, len(items), limit)]

    def __iter__(self) -> Iterator[tuple[T, ...]]:
        return iter(self._chunks)

    def __len__(self) -> int:
        return len(self._chunks)

    def adapt(self, pages: Iterable[float]) -> None:
        """Cut anew by how many pages each chunk, in order, took in the last window."""
        self._chunks = [
            part
            for chunk, held in self._joined(zip(self._chunks, pages, strict=True))
            for part in _split(chunk, held)
        ]

    def _joined(
        self, chunks: Iterable[tuple[tuple[T, ...], float]]
    ) -> Iterator[tuple[tuple[T, ...], float]]:
        last: tuple[T, ...] = ()
        last_held = 0.0
        for chunk, held in chunks:
            together = len(last) + len(chunk)
            if together <= self._limit and last_held + held <= _QUIET:
                last, last_held = last + chunk, last_held + held
                continue
            if last:
                yield last, last_held
            last, last_held = chunk, held
        if last:
            yield last, last_held


def _split(chunk: tuple[T, ...], held: float) -> Iterator[tuple[T, ...]]:
    """The chunk, or its halves if it is full; one item cannot be split."""
    if held < _FULL or len(chunk) == 1:
        yield chunk
        return
    middle = len(chunk) // 2
    yield chunk[:middle]
    yield chunk[middle:]
