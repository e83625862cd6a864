"""Tasks, each of which is read by one query.

For each stream, every µs of the window in which its generation is in force belongs to exactly one
task. Therefore nothing is left out, and nothing is read twice.
"""

from __future__ import annotations

from attrs import field, frozen

from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window


@frozen
class Task:
    """A chunk of adjacent streams of one generation, over one window."""

    window: Window
    streams: tuple[StreamId, ...] = field(repr=lambda streams: f"<{len(streams)} streams>")


@frozen
class RangeTask:
    """A span of the ring over one window: the streams whose tokens are in (start, end].

    Reads streams of any generation. If the order of changes matters, the window must therefore
    not cross from one generation into the next. The ring starts at the lowest token, which no
    stream has.
    """

    window: Window
    start: int
    end: int
