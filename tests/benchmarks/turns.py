"""Runs rivals alternately, so that other load on the machine affects all of them equally."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping

from attrs import frozen


@frozen
class Turn:
    """The time of one run, in seconds. `cpu` is the CPU time of all threads of this process."""

    wall: float
    cpu: float


def take_turns(ways: Mapping[str, Callable[[], object]], times: int) -> dict[str, Turn]:
    """Run all `ways` once to warm up, then `times` times in turn, and return the medians.

    A way that runs in a separate process returns a Turn, which replaces the one measured here.
    """
    taken: dict[str, list[Turn]] = {way: [] for way in ways}
    gc.collect()
    gc.freeze()  # The garbage collector then scans only what a run creates, not the whole program.
    for number in range(times + 1):
        for way, run in ways.items():
            turn = _timed(run)
            if number:
                taken[way].append(turn)
    gc.unfreeze()
    return {way: median(turns) for way, turns in taken.items()}


def median(turns: list[Turn]) -> Turn:
    """Return the medians of the wall times and of the CPU times."""
    return Turn(*(statistics.median(getattr(t, part) for t in turns) for part in ("wall", "cpu")))


def _timed(run: Callable[[], object]) -> Turn:
    wall, cpu = time.perf_counter(), time.process_time()
    told = run()
    return (
        told
        if isinstance(told, Turn)
        else Turn(time.perf_counter() - wall, time.process_time() - cpu)
    )
