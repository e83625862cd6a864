"""The plan of a read: pure arithmetic on numbers of streams, whatever their number.

A large cluster has millions of streams. A plan names those of a generation by their places
in ring order, which never change: it is as small for millions of streams as for ten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from attrs import evolve, frozen

from cdc_reader.generation import Timeline
from cdc_reader.window import Window


@frozen
class Span:
    """The streams from place `first` to before `last` of the generation that begins at
    `generation` µs, over one window.
    """

    window: Window
    generation: int
    first: int
    last: int

    @property
    def streams(self) -> int:
        return self.last - self.first

    @property
    def work(self) -> int:
        """What reading it may cost: there is a row for every so many µs of a stream."""
        return self.streams * self.window.length


def spans(timeline: Timeline, window: Window, count: Callable[[int], int]) -> list[Span]:
    """All that `window` needs, older generations first; `count` tells how many streams one has."""
    return [
        Span(operates.intersect(window), operates.start, 0, streams)
        for operates in timeline.touched(window)
        if (streams := count(operates.start))
    ]


def divide(parts: Sequence[Span], at_least: int, at_most: int) -> list[list[Span]]:
    """The spans in runs of about equal work, cut where need be, in order.

    There are `at_most` runs, or as many as there are streams if these are fewer; and if that is
    less than `at_least`, spans are cut in time too.
    """
    if sum(part.streams for part in parts) >= at_least:
        runs = _runs(parts, at_most)
        if len(runs) >= at_least:
            return runs
    pieces = [piece for part in parts for piece in _in_time(part, at_least)]
    return _runs(pieces, at_least)


def _runs(parts: Sequence[Span], count: int) -> list[list[Span]]:
    """At most `count` runs: the work is cut into equal pieces, each at the next whole stream."""
    total = sum(part.work for part in parts)
    runs: dict[int, list[Span]] = {}
    done = 0
    for part in parts:
        edges = (total * number // count for number in range(1, count))
        inside = [edge - done for edge in edges if done < edge < done + part.work]
        for piece in _at(part, [part.first + -(-edge // part.window.length) for edge in inside]):
            runs.setdefault(done * count // total, []).append(piece)
            done += piece.work
    return list(runs.values())


def _at(part: Span, cuts: Iterable[int]) -> Iterator[Span]:
    places = sorted({part.first, part.last, *cuts})
    for first, last in pairwise(places):
        yield evolve(part, first=first, last=last)


def _in_time(part: Span, pieces: int) -> Iterator[Span]:
    start, length = part.window.start, part.window.length
    edges = [start + length * number // pieces for number in range(pieces + 1)]
    for begin, end in pairwise(edges):
        if begin < end:
            yield evolve(part, window=Window(begin, end))
