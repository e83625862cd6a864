"""One run: a world, a reader for each shard, and the laws that hold all the while."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen

from cdc_reader.shard import Shard
from tests.cdc_reader.simulation.application import Application
from tests.cdc_reader.simulation.laws import LawBroken
from tests.cdc_reader.simulation.scenario import SECOND, Scenario, draw
from tests.cdc_reader.simulation.world import World

_MOST_STEPS = 5_000
_LAST_EVENTS = 60
_REACH = 12 * SECOND
"""µs by which own timestamps and clocks may be ahead of the cluster's."""


class BrokenSeed(AssertionError):
    """A seed whose run breaks a law, with its story and how to run it again."""


@frozen
class Run:
    """What became of a run: how much there was in it, and a digest of all that happened."""

    scenario: Scenario
    rows: int
    generations: int
    restarts: int
    digest: str


def simulate(seed: int) -> Run:
    """Run a seed; raises BrokenSeed if a law does not hold, or the reader fails."""
    rng = random.Random(seed)
    scenario = draw(rng)
    with _same_pauses(seed), _no_logging():
        world = World(scenario, rng)
        try:
            applications = _run(world, scenario, rng)
        except Exception as error:
            raise BrokenSeed(_story(seed, scenario, world, error)) from error
    digest = hashlib.sha256("\n".join(world.happened).encode()).hexdigest()
    restarts = sum(each.restarts for each in applications)
    return Run(scenario, len(world.truth.rows), len(world.sets), restarts, digest)


def _run(world: World, scenario: Scenario, rng: random.Random) -> list[Application]:
    world.begin()
    shards = [Shard(number + 1, scenario.shards) for number in range(scenario.shards)]
    applications = [Application(world, scenario, rng, shard) for shard in shards]
    while not world.is_calm:
        rng.choice(applications).step()
    until = world.clock.now() + _REACH
    for application in applications:
        _finish(application, until)
    return applications


def _finish(application: Application, until: int) -> None:
    for _ in range(_MOST_STEPS):
        if application.is_through(until):
            application.finish(until)
            return
        application.step()
    raise LawBroken(f"after {_MOST_STEPS} steps still not past {until}")


@contextmanager
def _same_pauses(seed: int) -> Iterator[None]:
    """Pauses between attempts are drawn from Python's common source."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


@contextmanager
def _no_logging() -> Iterator[None]:
    """What goes wrong is meant to."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


def _story(seed: int, scenario: Scenario, world: World, error: Exception) -> str:
    events = "\n  ".join(world.happened[-_LAST_EVENTS:])
    return (
        f"seed {seed}: {error!r}\n  {events}\n{scenario}\n"
        f"to run it again: make simulate SEED={seed} SEEDS=1"
    )
