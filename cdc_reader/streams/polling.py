"""Decides when an eager follower polls each chunk of streams: busy chunks most often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from attrs import evolve

from cdc_reader._time import BEGINNING, FOREVER, Micros
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window

SomeTask = TypeVar("SomeTask", Task, RangeTask)
_Chunk = StreamId | int

_SHARE, _TIMES, _LONGEST = 4, 8, 1_000_000
_WHOLE_INTERVAL = 1_000_000
"""µs after which the next poll of a chunk reads its whole window."""


class PollSchedule:
    """Decides which tasks are due. Times and intervals are in µs.

    A chunk is polled again after a quarter of the time since its last new row, but not before
    `interval` has passed. Idle chunks are polled after eight intervals or a second, whichever is
    shorter. If a chunk is due and its whole window has not been read for a second, the whole window
    is read instead of the newest rows. The reads of the whole windows of different chunks are
    spread over a second, so that no poll waits for all of them. A chunk is identified by its first
    stream, or by the start of its range.

    If the clock steps back, times that are now further away than any interval count as past, so
    that polls continue.
    """

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._longest = max(interval, min(_TIMES * interval, _LONGEST))
        self._due: dict[_Chunk, Micros] = {}
        self._whole_due: dict[_Chunk, Micros] = {}
        self._found: dict[_Chunk, Micros] = {}

    def due(self, tasks: Sequence[SomeTask], now: Micros, newest: Micros) -> Sequence[SomeTask]:
        """Return the due tasks, which are polled now.

        Tasks whose whole window is not due are limited to rows written at `newest` or later. Chunks
        that are not among `tasks` are forgotten.
        """
        before, self._due = self._due, {}
        whole_before, self._whole_due = self._whole_due, {}
        turn = _WHOLE_INTERVAL // max(1, len(tasks))
        chosen = []
        for number, task in enumerate(tasks, start=1):
            chunk, part = _chunk(task), task
            due, whole_due = before.get(chunk, now), whole_before.get(chunk, now)
            if not now < due <= now + self._longest:
                due = now + self._wait(chunk, now)
                if not now < whole_due <= now + _WHOLE_INTERVAL:
                    whole_due = now + (_WHOLE_INTERVAL if chunk in before else number * turn)
                else:
                    part = evolve(task, window=task.window.intersect(Window(newest, FOREVER)))
                if not part.window.is_empty:
                    chosen.append(part)
            self._due[chunk], self._whole_due[chunk] = due, whole_due
        found = self._found.items()
        self._found = {chunk: min(at, now) for chunk, at in found if chunk in self._due}
        return chosen

    def found_rows(self, task: Task | RangeTask, now: Micros) -> None:
        """Record that a task has new rows, and let its chunk be polled again after one interval."""
        self._found[_chunk(task)] = now
        self._due[_chunk(task)] = now + self._interval

    def until_next(self, now: Micros) -> int:
        """Return the time until the next task is due."""
        times = (at - now for at in self._due.values())
        return min([time for time in times if time <= self._longest], default=self._interval)

    def _wait(self, chunk: _Chunk, now: Micros) -> int:
        """Return the time from a poll that finds no rows to the chunk's next poll."""
        idle = now - self._found.get(chunk, BEGINNING)
        return min(max(self._interval, idle // _SHARE), self._longest)


def _chunk(task: Task | RangeTask) -> _Chunk:
    return task.streams[0] if isinstance(task, Task) else task.start
