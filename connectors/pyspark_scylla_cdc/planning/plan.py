"""The plan of a read, computed from the numbers of streams alone.

A large cluster has millions of streams. A plan divides them by their places in ring order, so it is
as small for millions of streams as for ten.

Work is divided twice. First, all streams are cut into runs of equal work. If one stream is hot, its
run holds most of the rows, and only reading the rows would show which run that is. Therefore, each
run is also cut into time slices, which are distributed in turn: slice j of run i goes to share i +
j, modulo the number of shares. All shares still have equal work, and each slice of the hot stream
is in a different share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from attrs import evolve, frozen

from cdc_reader._time import Micros
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window

ASKING = 10_000_000
"""The cost of querying one stream, even if it is empty, expressed in µs of write time."""
SHORTEST_SLICE = 10_000_000
"""The shortest slice, in µs of write time, that is worth its own queries."""
MOST_QUERIES = 4_096
"""The maximum number of queries in a sliced plan; a plan that would need more is not sliced."""

NONE_MISSED: Mapping[Micros, Window] = {}

_EVEN = 4
"""The minimum number of streams in a share of one slice, so that shares differ little in size."""


@frozen
class StreamSpan:
    """The streams at places `first` to `last` (exclusive) of a generation, over one window.

    `generation` is the generation's start in µs.
    """

    window: Window
    generation: Micros
    first: int
    last: int
    filled: Window
    """The part of the window in which rows are expected; it may be empty."""

    @property
    def streams(self) -> int:
        return self.last - self.first

    @property
    def weight(self) -> int:
        """The estimated cost of reading one stream of the span, expressed in µs of write time."""
        return self.filled.length + ASKING

    @property
    def work(self) -> int:
        """The estimated cost of reading all streams of the span, in the same unit as `weight`."""
        return self.streams * self.weight


def spans(
    timeline: Timeline,
    window: Window,
    count: Callable[[Micros], int],
    filled: Window | None = None,
    missed: Mapping[Micros, Window] = NONE_MISSED,
) -> list[StreamSpan]:
    """Return all spans of `window`, older generations first.

    `count` returns the number of a generation's streams. `missed` maps the starts of late-announced
    generations to unread windows before `window`. Each of these generations is read from the start
    of its unread window to the end of `window`.

    Rows are expected in `filled`, or in the whole window if `filled` is None. This affects only how
    the work is divided: rows outside `filled` are read too.
    """
    found = []
    for operates in timeline.operating():
        begin = missed.get(operates.start, window).start
        part = operates.intersect(Window(begin, window.end))
        if not part.is_empty and (streams := count(operates.start)):
            expected = part.intersect(filled or part)
            found.append(StreamSpan(part, operates.start, 0, streams, expected))
    return found


def slices(parts: Sequence[StreamSpan], at_most: int, chunk: int) -> int:
    """Return the number of time slices, at most `at_most`, into which to cut the spans.

    `chunk` is the number of streams per query.
    """
    length = sum(part.filled.length for part in parts)
    queries = sum(part.streams for part in parts) // chunk + len(parts) + at_most
    return max(1, min(at_most, length // SHORTEST_SLICE, MOST_QUERIES // queries))


def divide(
    parts: Sequence[StreamSpan], at_least: int, at_most: int, slices: int = 1
) -> list[list[StreamSpan]]:
    """Divide the spans into shares of about equal work, each in order.

    Older generations come first, and for each stream, earlier times come first. There are `at_most`
    shares if there are enough streams. With fewer streams, the number of shares is the number of
    streams or `slices`, whichever is larger. If that number is less than `at_least`, there are
    `at_least` shares, filled slice by slice. With one slice, all rows of a stream are in one share.
    """
    runs = _runs(parts, at_most)
    if max(len(runs), slices) < at_least:
        count = max(slices, _even(at_least, sum(part.streams for part in parts)))
        return _slice_by_slice(parts, count, at_least)
    shares: list[list[StreamSpan]] = [[] for _ in range(max(len(runs), slices))]
    for number, run in enumerate(runs):
        for part in run:
            for place, piece in _in_time(part, slices):
                shares[(number + place) % len(shares)].append(piece)
    return [share for share in shares if share]


def _even(shares: int, streams: int) -> int:
    """Return the number of time slices into which `streams` streams are cut for `shares` shares.

    Each share of a slice has at least `_EVEN` streams, so that shares differ little in size. If
    that is impossible, each share is one slice of all streams.
    """
    found = (count for count in range(1, shares) if shares % count == 0)
    return next((count for count in found if count * streams >= shares * _EVEN), shares)


def _slice_by_slice(parts: Sequence[StreamSpan], count: int, shares: int) -> list[list[StreamSpan]]:
    """Return `shares` shares in chronological order, each within one of `count` time slices."""
    sliced: list[list[StreamSpan]] = [[] for _ in range(count)]
    for part in parts:
        for place, piece in _in_time(part, count):
            sliced[place].append(piece)
    edges = [shares * place // count for place in range(count + 1)]
    found = zip(sliced, pairwise(edges), strict=True)
    return [run for pieces, (first, last) in found for run in _runs(pieces, last - first)]


def _runs(parts: Sequence[StreamSpan], count: int) -> list[list[StreamSpan]]:
    """Cut the work into at most `count` equal runs, each extended to the end of a stream."""
    total = sum(part.work for part in parts)
    runs: dict[int, list[StreamSpan]] = {}
    done = 0
    for part in parts:
        edges = (total * number // count for number in range(1, count))
        inside = [edge - done for edge in edges if done < edge < done + part.work]
        for piece in _at(part, [part.first + -(-edge // part.weight) for edge in inside]):
            runs.setdefault(done * count // total, []).append(piece)
            done += piece.work
    return list(runs.values())


def _at(part: StreamSpan, cuts: Iterable[int]) -> Iterator[StreamSpan]:
    places = sorted({part.first, part.last, *cuts})
    for first, last in pairwise(places):
        yield evolve(part, first=first, last=last)


def _in_time(part: StreamSpan, count: int) -> Iterator[tuple[int, StreamSpan]]:
    """Yield the non-empty time slices of a span, numbered from 0."""
    cut = part.filled if part.filled.length >= count else part.window
    inner = [cut.start + cut.length * number // count for number in range(1, count)]
    for number, edges in enumerate(pairwise([part.window.start, *inner, part.window.end])):
        window = Window(*edges)
        if not window.is_empty:
            yield number, evolve(part, window=window, filled=part.filled.intersect(window))
