"""One execution of a statement: its bound values and its moment."""

from __future__ import annotations

from collections.abc import Callable

from attrs import field, frozen

from cdc_reader.testing.embedded.query.options import QueryOptions, Value


class Ordinals:
    """Counts list elements within a statement or batch, so that their timeuuids keep order.

    Appended elements count up from 0, prepended ones down from 2^17.
    """

    LIMIT = 1 << 17

    def __init__(self) -> None:
        self._appended = 0
        self._prepended = self.LIMIT

    def append(self) -> int:
        """The ordinal of the next element at a list's end."""
        self._appended += 1
        return self._appended - 1

    def prepend(self, count: int) -> range:
        """The ordinals of `count` elements to stand, in this order, before all others."""
        self._prepended -= count
        return range(self._prepended, self._prepended + count)


@frozen
class Execution:
    """What a statement knows when it runs.

    `values` are the validated bound values by marker index; `now_us` is the server's time in µs;
    `server_timestamp` takes a write timestamp from the server, for statements that bring none.
    """

    values: tuple[Value, ...]
    now_us: int
    server_timestamp: Callable[[], int]
    options: QueryOptions
    ordinals: Ordinals = field(factory=Ordinals)

    @property
    def now(self) -> int:
        """The server's time in seconds, for expiry."""
        return self.now_us // 1_000_000


Evaluate = Callable[[Execution], Value]
"""A term made ready: gives its value, in serialised form, for an execution."""
