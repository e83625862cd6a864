"""Deltas: what a write did to a column: `Assigned`, `Deleted` or, for elements, `CollectionDelta`.

A column that the write left unchanged has no delta.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from cdc_reader.cql.values import frozen_map, frozen_set
from cdc_reader.decoding import Wrapper


class Assigned(Wrapper):
    """The column was set to `value`, which replaced any previous value."""

    __slots__ = ()

    def __init__(self, value: Any) -> None:
        super().__init__(value)

    def __str__(self) -> str:
        return f"= {self.value!r}"


@frozen
class Deleted:
    """The column was set to null; setting a collection to an empty one has the same effect."""

    def __str__(self) -> str:
        return "= null"


@frozen
class CollectionDelta:
    """The changes to the elements of a non-frozen collection or user-defined type.

    `added` contains the elements that were set, whether or not they are new. For a set, it is a set
    of elements. For a map, it maps keys to values; for a user-defined type, it maps field names to
    values; for a list, it maps timeuuids to elements, in the order of the list. `removed` contains
    elements, keys, field names or timeuuids. If `overwritten` is True, all previous elements were
    removed.
    """

    overwritten: bool
    added: Mapping[Any, Any] | frozenset[Any]
    removed: frozenset[Any] = frozenset()

    def __str__(self) -> str:
        sign = "=" if self.overwritten else "+"
        added = _text(self.added)
        removed = f" - {_text(self.removed)}" if self.removed else ""
        return f"{sign} {added}{removed}" if self.added or not removed else removed.strip()


Delta = Assigned | Deleted | CollectionDelta
"""What a write did to a column."""
DELETED = Deleted()


def merge(earlier: Delta | None, later: Delta) -> Delta:
    """Merge two deltas of a column that come from the same write.

    Two deltas of a collection must not set or remove the same element.
    """
    if isinstance(earlier, Deleted) and isinstance(later, CollectionDelta):
        return CollectionDelta(True, later.added, later.removed)
    if isinstance(earlier, CollectionDelta):
        return _merge_elements(earlier, later)
    return later


def _merge_elements(earlier: CollectionDelta, later: Delta) -> Delta:
    if isinstance(later, Assigned):
        return later
    if isinstance(later, Deleted):
        return CollectionDelta(True, earlier.added, earlier.removed)
    return CollectionDelta(
        earlier.overwritten or later.overwritten,
        _union(earlier.added, later.added),
        frozen_set([*earlier.removed, *later.removed]),
    )


def _union(
    earlier: Mapping[Any, Any] | frozenset[Any], later: Mapping[Any, Any] | frozenset[Any]
) -> Mapping[Any, Any] | frozenset[Any]:
    if isinstance(earlier, Mapping) and isinstance(later, Mapping):
        return frozen_map([*earlier.items(), *later.items()])
    return frozen_set([*earlier, *later])


def _text(elements: Mapping[Any, Any] | frozenset[Any]) -> str:
    if isinstance(elements, Mapping):
        return repr(elements)
    return f"{{{', '.join(sorted(map(repr, elements)))}}}"
