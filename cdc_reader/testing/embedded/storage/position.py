"""Positions in a partition: rows, and the gaps before and after all rows with a prefix.

A position is a flat tuple that Python compares as ScyllaDB compares positions. A row is ``(1, k1,
1, k2, 1)``; the gap before all rows with prefix k1 is ``(1, k1, 0)``, and the gap after them is
``(1, k1, 2)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from cdc_reader.testing.embedded.codec.order import SortKey

Position = tuple[Any, ...]

BEFORE, AT, AFTER = 0, 1, 2


def position(sort_keys: Sequence[SortKey], values: Sequence[bytes], place: int = AT) -> Position:
    """Return the position of a full key (AT), or of the gap BEFORE or AFTER a prefix."""
    flat: list[Any] = []
    for key, value in zip(sort_keys, values, strict=False):
        flat += (AT, key(value))
    flat.append(place)
    return tuple(flat)


@frozen
class Bound:
    """The gap BEFORE or AFTER the rows with a prefix.

    A start is inclusive if its place is BEFORE, and an end is inclusive if its place is AFTER.
    """

    prefix: tuple[bytes, ...]
    place: int

    def position(self, sort_keys: Sequence[SortKey]) -> Position:
        return position(sort_keys, self.prefix, self.place)
