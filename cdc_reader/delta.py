"""What a write did to one column: `Set`, `Deleted`, or, of a collection, `CollectionDelta`.

A column that a write left alone has no delta at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen


@frozen
class Set:
    """The column was set to `value`, which replaces all of it."""

    value: Any

    def __str__(self) -> str:
        return f"= {self.value!r}"


@frozen
class Deleted:
    """The column was set to null; a collection that is set to an empty one is null too."""

    def __str__(self) -> str:
        return "= null"


@frozen
class CollectionDelta:
    """What was done to the elements of a non-frozen collection or user-defined type.

    `added` holds what was set, new or not: of a map by key, of a user-defined type by field
    name, of a list by the timeuuid of the element (their order as time UUIDs is that of the
    list); of a set it is the elements. `removed` holds keys, field names, timeuuids or
    elements. If it is `overwritten`, all that was there before is gone.
    """

    overwritten: bool
    added: Mapping[Any, Any] | frozenset[Any]
    removed: frozenset[Any] = frozenset()

    def __str__(self) -> str:
        sign = "=" if self.overwritten else "+"
        added = _text(self.added)
        removed = f" - {_text(self.removed)}" if self.removed else ""
        return f"{sign} {added}{removed}" if self.added or not removed else removed.strip()


Delta = Set | Deleted | CollectionDelta
DELETED = Deleted()


def merge(earlier: Delta | None, later: Delta) -> Delta:
    """Both deltas of one column as one; they are of one write, hence touch different elements."""
    if isinstance(earlier, Deleted) and isinstance(later, CollectionDelta):
        return CollectionDelta(True, later.added, later.removed)
    if isinstance(earlier, CollectionDelta):
        return _merge_elements(earlier, later)
    return later


def _merge_elements(earlier: CollectionDelta, later: Delta) -> Delta:
    if isinstance(later, Set):
        return later
    if isinstance(later, Deleted):
        return CollectionDelta(True, earlier.added, earlier.removed)
    return CollectionDelta(
        earlier.overwritten or later.overwritten,
        _union(earlier.added, later.added),
        earlier.removed | later.removed,
    )


def _union(
    earlier: Mapping[Any, Any] | frozenset[Any], later: Mapping[Any, Any] | frozenset[Any]
) -> Mapping[Any, Any] | frozenset[Any]:
    if isinstance(earlier, Mapping) and isinstance(later, Mapping):
        return type(earlier)({**earlier, **later})  # type: ignore[call-arg]  # FrozenDict
    return frozenset(earlier) | frozenset(later)


def _text(elements: Mapping[Any, Any] | frozenset[Any]) -> str:
    if isinstance(elements, Mapping):
        return repr(elements)
    return f"{{{', '.join(sorted(map(repr, elements)))}}}"
