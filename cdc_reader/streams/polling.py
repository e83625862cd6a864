"""Decides when an eager follower polls each chunk of streams: busy chunks most often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from cdc_reader._time import BEGINNING, Micros
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import RangeTask, Task

SomeTask = TypeVar("SomeTask", Task, RangeTask)
_Chunk = StreamId | int

_SHARE, _TIMES, _LONGEST = 4, 5, 1_000_000


class PollSchedule:
    """Decides which tasks are due; times and intervals in µs.

    A chunk is polled again after a quarter of the time since its last new row, but not before
    `interval` has passed. Idle chunks are polled after five intervals or a second, whichever is
    shorter. A chunk is identified by its first stream, or by where its range starts.
    """

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._longest = max(interval, min(_TIMES * interval, _LONGEST))
        self._due: dict[_Chunk, Micros] = {}
        self._found: dict[_Chunk, Micros] = {}

    def all(self, tasks: Sequence[SomeTask], now: Micros) -> Sequence[SomeTask]:
        """Return all tasks, which are polled now; forget chunks that are not among them."""
        chunks = set(map(_chunk, tasks))
        self._found = {chunk: at for chunk, at in self._found.items() if chunk in chunks}
        self._due.clear()
        return self.due(tasks, now)

    def due(self, tasks: Sequence[SomeTask], now: Micros) -> Sequence[SomeTask]:
        """Return the tasks that are due, which are polled now."""
        self._due = {chunk: self._due.get(chunk, now) for chunk in map(_chunk, tasks)}
        chosen = [task for task in tasks if self._due[_chunk(task)] <= now]
        for chunk in map(_chunk, chosen):
            idle = now - self._found.get(chunk, BEGINNING)
            self._due[chunk] = now + min(max(self._interval, idle // _SHARE), self._longest)
        return chosen

    def found_rows(self, task: Task | RangeTask, now: Micros) -> None:
        """Record that a task has new rows: poll its chunk again after one interval."""
        self._found[_chunk(task)] = now
        self._due[_chunk(task)] = now + self._interval

    def until_next(self, now: Micros) -> int:
        """Return the time until the next task is due."""
        return min([at - now for at in self._due.values()], default=self._interval)


def _chunk(task: Task | RangeTask) -> _Chunk:
    return task.streams[0] if isinstance(task, Task) else task.start
