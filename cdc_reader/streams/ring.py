"""Token ranges: parts of the ring, their unions and their differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import field, frozen

from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN


@frozen(order=True)
class TokenRange:
    """The tokens in (start, end].

    The ring starts at the lowest token, which no partition has.
    """

    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of tokens."""
        return self.end - self.start

    def __contains__(self, token: int) -> bool:
        return self.start < token <= self.end

    def __str__(self) -> str:
        return f"({self.start}, {self.end}]"


def _merged(ranges: Iterable[TokenRange]) -> tuple[TokenRange, ...]:
    """Sort the ranges, merge those that overlap or are adjacent, and drop empty ones."""
    merged: list[TokenRange] = []
    for each in sorted(ranges):
        if each.size <= 0:
            continue
        if merged and each.start <= merged[-1].end:
            merged[-1] = TokenRange(merged[-1].start, max(merged[-1].end, each.end))
        else:
            merged.append(each)
    return tuple(merged)


@frozen
class TokenRanges:
    """Disjoint ranges in ring order; adjacent ranges are merged."""

    ranges: tuple[TokenRange, ...] = field(default=(), converter=_merged)

    @property
    def size(self) -> int:
        """The number of tokens."""
        return sum(each.size for each in self.ranges)

    def adding(self, *more: TokenRange) -> TokenRanges:
        """Return the union of these ranges and `more`."""
        return TokenRanges((*self.ranges, *more))

    def without(self, others: TokenRanges) -> TokenRanges:
        """Return the tokens that are in none of the `others`."""
        return TokenRanges(part for each in self.ranges for part in _left(each, others))

    def __iter__(self) -> Iterator[TokenRange]:
        return iter(self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)


def _left(one: TokenRange, others: Iterable[TokenRange]) -> Iterator[TokenRange]:
    """Yield the parts of a range outside the `others`, in ring order; parts may be empty."""
    start = one.start
    for other in others:
        if start < other.end and other.start < one.end:
            yield TokenRange(start, other.start)
            start = other.end
    yield TokenRange(start, one.end)


WHOLE_RING = TokenRanges((TokenRange(MIN_TOKEN, MAX_TOKEN),))
