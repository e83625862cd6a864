"""How much may be in hand: what bounds memory when handlers are slow."""

from __future__ import annotations

import threading

from attrs import define


@define(eq=False)
class Lot:
    """Changes that came in together: a page keeps its bytes until the last of them is gone."""

    size: int
    left: int


class Budget:
    """Lets readers in while less than `changes` changes and `size` bytes are in hand.

    So what is in hand exceeds the limits by a lot for each reader at most, and one that is
    larger than all that may be in hand comes through too.
    """

    def __init__(self, changes: int, size: int) -> None:
        self._limits = changes, size
        self._changes = self._size = 0
        self._is_closed = False
        self._room = threading.Condition()
        self.is_awaited = False
        """Whether somebody waits for room."""

    def enter(self, changes: int, size: int) -> Lot | None:
        """Wait for room, then take it; None, and none taken, once it is closed."""
        with self._room:
            while not (self._is_closed or self._has_room()):
                self.is_awaited = True
                self._room.wait()
            self.is_awaited = False
            if self._is_closed:
                return None
            self._changes += changes
            self._size += size
            return Lot(size, changes)

    def leave(self, lot: Lot, changes: int) -> None:
        """A change of the lot is gone, and room for so many is free again."""
        with self._room:
            self._changes -= changes
            lot.left -= 1
            if not lot.left:
                self._size -= lot.size
            if self._has_room():
                self._room.notify_all()

    def close(self) -> None:
        """Let nobody in any more, those who wait included."""
        with self._room:
            self._is_closed = True
            self._room.notify_all()

    def _has_room(self) -> bool:
        changes, size = self._limits
        return self._changes < changes and self._size < size
