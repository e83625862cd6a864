"""The plan of a read: pure arithmetic on numbers of streams, whatever their number.

A large cluster has millions of streams. A plan names those of a generation by their places
in ring order, which never change: it is as small for millions of streams as for ten.

Work is shared out twice. First all streams are cut into runs of equal work. If one of them is
hot, its run holds most of the rows, and nothing short of reading them tells which it is. So
each run is also cut into slices of time, and these are dealt out in turn: slice j of run i goes
to share i + j, counted around. All shares hold as much work as before, and as many of them as
there are slices have a part of the hot stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from attrs import evolve, frozen

from cdc_reader.generation import Timeline
from cdc_reader.window import Window

ASKING = 10_000_000
"""What asking for a stream costs, in µs of a stream's rows: it costs something even where
there are none.
"""
SHORTEST_SLICE = 10_000_000
"""µs of write time that are worth queries of their own."""
MOST_QUERIES = 4_096
"""How many queries slices may make of a plan; one that has as many without is not sliced."""

_EVEN = 4
"""Streams of a slice that a share has, where it has whole ones: shares differ by one at most."""


@frozen
class Span:
    """The streams from place `first` to before `last` of the generation that begins at
    `generation` µs, over one window.
    """

    window: Window
    generation: int
    first: int
    last: int
    filled: Window
    """The part of the window in which rows are to be expected; it may be empty."""

    @property
    def streams(self) -> int:
        return self.last - self.first

    @property
    def weight(self) -> int:
        """What reading one of its streams may cost: there is a row for every so many µs."""
        return self.filled.length + ASKING

    @property
    def work(self) -> int:
        """What reading it may cost."""
        return self.streams * self.weight


def spans(
    timeline: Timeline, window: Window, count: Callable[[int], int], filled: Window | None = None
) -> list[Span]:
    """All that `window` needs, older generations first; `count` tells how many streams one has.

    Rows are expected where `filled` says, or all over the window. That is for sharing out the
    work: wherever they are, they are read.
    """
    found = []
    for operates in timeline.touched(window):
        if streams := count(operates.start):
            part = operates.intersect(window)
            expected = part.intersect(filled or window)
            found.append(Span(part, operates.start, 0, streams, expected))
    return found


def slices(parts: Sequence[Span], at_most: int, chunk: int) -> int:
    """Into how many slices of time the spans are worth cutting, `at_most` or fewer.

    `chunk` is the number of streams that one query asks for.
    """
    length = sum(part.filled.length for part in parts)
    queries = sum(part.streams for part in parts) // chunk + len(parts) + at_most
    return max(1, min(at_most, length // SHORTEST_SLICE, MOST_QUERIES // queries))


def divide(parts: Sequence[Span], at_least: int, at_most: int, slices: int = 1) -> list[list[Span]]:
    """The spans in shares of about equal work, each in order: older generations first, and of a
    stream older times first.

    There are `at_most` shares, or as many as there are streams or `slices`, whichever are more.
    If that is less than `at_least`, there are so many, of the slices one after the other. With one
    slice a stream is in one share with all its time.
    """
    runs = _runs(parts, at_most)
    if max(len(runs), slices) < at_least:
        count = max(slices, _even(at_least, sum(part.streams for part in parts)))
        return _slice_by_slice(parts, count, at_least)
    shares: list[list[Span]] = [[] for _ in range(max(len(runs), slices))]
    for number, run in enumerate(runs):
        for part in run:
            for place, piece in _in_time(part, slices):
                shares[(number + place) % len(shares)].append(piece)
    return [share for share in shares if share]


def _even(shares: int, streams: int) -> int:
    """Into how many slices to cut so many streams, for as many shares of each: of some streams
    each, so that one more or less is little, or of all.
    """
    found = (count for count in range(1, shares) if shares % count == 0)
    return next((count for count in found if count * streams >= shares * _EVEN), shares)


def _slice_by_slice(parts: Sequence[Span], count: int, shares: int) -> list[list[Span]]:
    """So many shares, each of one slice of `count`: the first so many of the first, and so on."""
    sliced: list[list[Span]] = [[] for _ in range(count)]
    for part in parts:
        for place, piece in _in_time(part, count):
            sliced[place].append(piece)
    edges = [shares * place // count for place in range(count + 1)]
    found = zip(sliced, pairwise(edges), strict=True)
    return [run for pieces, (first, last) in found for run in _runs(pieces, last - first)]


def _runs(parts: Sequence[Span], count: int) -> list[list[Span]]:
    """At most `count` runs: the work is cut into equal pieces, each at the next whole stream."""
    total = sum(part.work for part in parts)
    runs: dict[int, list[Span]] = {}
    done = 0
    for part in parts:
        edges = (total * number // count for number in range(1, count))
        inside = [edge - done for edge in edges if done < edge < done + part.work]
        for piece in _at(part, [part.first + -(-edge // part.weight) for edge in inside]):
            runs.setdefault(done * count // total, []).append(piece)
            done += piece.work
    return list(runs.values())


def _at(part: Span, cuts: Iterable[int]) -> Iterator[Span]:
    places = sorted({part.first, part.last, *cuts})
    for first, last in pairwise(places):
        yield evolve(part, first=first, last=last)


def _in_time(part: Span, count: int) -> Iterator[tuple[int, Span]]:
    """The slices of a span, numbered from 0; those that would be empty are left out."""
    cut = part.filled if part.filled.length >= count else part.window
    inner = [cut.start + cut.length * number // count for number in range(1, count)]
    for number, edges in enumerate(pairwise([part.window.start, *inner, part.window.end])):
        window = Window(*edges)
        if not window.is_empty:
            yield number, evolve(part, window=window, filled=part.filled.intersect(window))
