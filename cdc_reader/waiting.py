"""How long it takes to wait for things."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from attrs import define

from cdc_reader.ports import Clock

T = TypeVar("T")


@define
class Waiting:
    """Counts the time that is waited for things, not what is done with them in between."""

    _clock: Clock
    took: int = 0
    """µs so far."""

    def each(self, things: Iterable[T]) -> Iterator[T]:
        """The things as they are."""
        began = self._clock.now()
        for thing in things:
            self.took += self._clock.now() - began
            yield thing
            began = self._clock.now()
        self.took += self._clock.now() - began
