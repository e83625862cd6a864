"""Rivals that take turns, so that what else the machine does weighs on each alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping

from attrs import frozen


@frozen
class Turn:
    """What one run took, in seconds; `cpu` is that of this process, all threads together."""

    wall: float
    cpu: float


def take_turns(ways: Mapping[str, Callable[[], object]], times: int) -> dict[str, Turn]:
    """The medians of so many runs of each way, one after the other, after a run to warm up.

    A way that is a process of its own returns the Turn that it took.
    """
    taken: dict[str, list[Turn]] = {way: [] for way in ways}
    gc.collect()
    gc.freeze()  # the garbage collector looks at what a run makes, not at all of this program
    for number in range(times + 1):
        for way, run in ways.items():
            turn = _timed(run)
            if number:
                taken[way].append(turn)
    gc.unfreeze()
    return {way: median(turns) for way, turns in taken.items()}


def median(turns: list[Turn]) -> Turn:
    """The median of each part on its own."""
    return Turn(*(statistics.median(getattr(t, part) for t in turns) for part in ("wall", "cpu")))


def _timed(run: Callable[[], object]) -> Turn:
    wall, cpu = time.perf_counter(), time.process_time()
    told = run()
    return (
        told
        if isinstance(told, Turn)
        else Turn(time.perf_counter() - wall, time.process_time() - cpu)
    )
