"""The streams of a generation in one piece of memory: 16 bytes each, in ring order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import field, frozen

from cdc_reader.generation import Generation, StreamGroup
from cdc_reader.ids import StreamId
from cdc_reader.row_keys import rows_of
from cdc_reader.task import RangeTask, Task
from cdc_reader.window import BEGINNING, FOREVER, Window

_SIZE = 16
_LOWEST = -(1 << 63)


@frozen(slots=False)
class Streams:
    """Stream ids behind one another, in the order of their tokens."""

    raw: bytes = field(repr=False)

    @classmethod
    def of(cls, groups: Iterable[StreamGroup]) -> Streams:
        """The streams of a generation."""
        generation = Generation(Window(BEGINNING, FOREVER), tuple(groups))
        raw = b"".join(b"".join(group.streams) for group in generation.groups)
        order = np.argsort(_tokens(raw), kind="stable")
        return cls(np.frombuffer(raw, f"V{_SIZE}")[order].tobytes())

    def __len__(self) -> int:
        return len(self.raw) // _SIZE

    def __contains__(self, stream: bytes) -> bool:
        token = StreamId(stream).token
        first = int(np.searchsorted(self._tokens, token))
        last = int(np.searchsorted(self._tokens, token, "right"))
        return any(self.part(at, at + 1).raw == stream for at in range(first, last))

    def part(self, first: int, last: int) -> Streams:
        """Those from place `first` to before `last`."""
        return Streams(self.raw[first * _SIZE : last * _SIZE])

    def sample(self, count: int) -> Streams:
        """As many of them, or fewer if there are not as many, from all around the ring."""
        places = sorted({len(self) * number // count for number in range(count)})
        return Streams(b"".join(self.part(place, place + 1).raw for place in places))

    def tasks(self, window: Window, chunk: int) -> Iterator[Task]:
        """Tasks of up to `chunk` streams each."""
        for first in range(0, len(self.raw), chunk * _SIZE):
            ids = self.raw[first : first + chunk * _SIZE]
            places = range(0, len(ids), _SIZE)
            yield Task(window, tuple(StreamId(ids[at : at + _SIZE]) for at in places))

    def range_task(self, window: Window) -> RangeTask:
        """The span of the ring that these streams lie in, perhaps among others: see `rows`."""
        start, end = int(self._tokens[0]) - 1, int(self._tokens[-1])
        return RangeTask(window, max(start, _LOWEST), end)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of these streams; none of the batches is empty."""
        for batch in batches:
            if (own := rows_of(batch, self.__contains__)).num_rows:
                yield own

    @cached_property
    def _tokens(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return _tokens(self.raw)


def _tokens(raw: bytes) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The first half of each id."""
    return np.frombuffer(raw, ">i8")[::2].astype(np.int64)
