"""Recognises permanent server errors by their message, where the code does not tell.

ScyllaDB sends every error without a code of its own as a "server error". Some are transient, such
as a failed allocation or a node that shuts down. A limit of its configuration is not.
"""

from __future__ import annotations

import re

_TOO_MANY_KEYS = re.compile(r"cartesian product size \d+ is greater than maximum (\d+)")
_LASTING = (
    _TOO_MANY_KEYS,
    re.compile(r"could not find any CDC streams?"),  # a write older than the first generation
)


def is_lasting(text: str) -> bool:
    """True if the server would give the same error however often the statement is repeated."""
    return any(pattern.search(text) for pattern in _LASTING)


def most_keys(text: str) -> int | None:
    """The limit of keys in an IN list, if a query was refused for exceeding it; else None."""
    found = _TOO_MANY_KEYS.search(text)
    return int(found[1]) if found else None
