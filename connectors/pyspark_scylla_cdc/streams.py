"""The streams of a generation in one piece of memory: 16 bytes each, in ring order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from attrs import field, frozen

from cdc_reader.generation import Generation, StreamGroup
from cdc_reader.ids import StreamId
from cdc_reader.task import RangeTask, Task
from cdc_reader.window import BEGINNING, FOREVER, Window

_SIZE = 16
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


@frozen(slots=False)
class Streams:
    """Stream ids behind one another. Of a whole generation, they are in ring order."""

    raw: bytes = field(repr=False)

    @classmethod
    def of(cls, groups: Iterable[StreamGroup]) -> Streams:
        """The streams of a generation."""
        generation = Generation(Window(BEGINNING, FOREVER), tuple(groups))
        return cls(b"".join(b"".join(group.streams) for group in generation.groups))

    def __len__(self) -> int:
        return len(self.raw) // _SIZE

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

    def range_tasks(self, window: Window, first: int, last: int) -> Iterator[RangeTask]:
        """The span of the ring with the streams from place `first` to before `last`, by token.

        Over all parts of a generation these spans are the whole ring, and none overlap.
        """
        tokens = self._tokens
        start = _LOWEST if first == 0 else int(tokens[first - 1])
        end = _HIGHEST if last == len(self) else int(tokens[last - 1])
        if start < end:
            yield RangeTask(window, start, end)

    @cached_property
    def _tokens(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The tokens of a whole generation, in order."""
        return np.sort(np.frombuffer(self.raw, ">i8")[::2])
