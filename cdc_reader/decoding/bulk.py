"""Creates many Python objects at a time, without calling a Python function for each.

A page has thousands of rows, and each row becomes several small objects; a reader that uses all
of them spends most of its time here. The loops are `map` over built-in functions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, TypeVar

import attrs

T = TypeVar("T", bound=attrs.AttrsInstance)


def instances(cls: type[T], count: int, *columns: Iterable[Any]) -> list[T]:
    """Create what ``map(cls, *columns)`` would; for slotted classes without validators/converters.

    Pass one column of `count` values for each attribute; an endless `repeat` is allowed too.
    """
    made = list(map(object.__new__, repeat(cls, count)))
    for attribute, column in zip(attrs.fields(cls), columns, strict=True):
        _run(getattr(cls, attribute.name).__set__, made, column)
    return made


def put_all(mappings: Iterable[dict[str, Any]], name: str, values: Iterable[Any]) -> None:
    """Put a value under `name` into each of several mappings, none of which has the name yet.

    Bypasses the class's ``__setitem__``, so that read-only mappings can be filled.
    """
    _run(dict.setdefault, mappings, repeat(name), values)


def _run(act: Callable[..., object], *arguments: Iterable[Any]) -> None:
    deque(map(act, *arguments), maxlen=0)
