"""Many Python objects at a time, without a call of a Python function for each.

A page has thousands of rows, and every row makes several small objects: whoever reads all of
them spends most of the time here. What loops is `map`, over functions that are Python's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, TypeVar

import attrs

T = TypeVar("T", bound=attrs.AttrsInstance)


def instances(cls: type[T], count: int, *columns: Iterable[Any]) -> list[T]:
    """What ``map(cls, *columns)`` makes, of a slotted class without validators or converters.

    There is a column for each of its attributes, of `count` values; one that is a `repeat` may
    be longer.
    """
    made = list(map(object.__new__, repeat(cls, count)))
    for attribute, column in zip(attrs.fields(cls), columns, strict=True):
        _run(getattr(cls, attribute.name).__set__, made, column)
    return made


def put_all(mappings: Iterable[dict[str, Any]], name: str, values: Iterable[Any]) -> None:
    """Put a value into each of some mappings that are being made, none of which has the name.

    What a class makes of ``__setitem__`` is passed by: a mapping is frozen once it is made.
    """
    _run(dict.setdefault, mappings, repeat(name), values)


def _run(act: Callable[..., object], *arguments: Iterable[Any]) -> None:
    deque(map(act, *arguments), maxlen=0)
