"""One run: a world, the readers of each shard, and the laws."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from attrs import frozen

from cdc_reader.streams.shard import Shard
from tests.cdc_reader.simulation.application import Application, rivals
from tests.cdc_reader.simulation.bounded import BoundedReads
from tests.cdc_reader.simulation.laws import LawBroken
from tests.cdc_reader.simulation.scenario import (
    SECOND,
    Scenario,
    draw,
    with_expiry,
    with_machine,
    with_nodes,
    with_rivals,
    with_snapshot,
)
from tests.cdc_reader.simulation.snapshot_laws import Beginning
from tests.cdc_reader.simulation.world import World
from tests.cdc_reader.support.tuned import tuned

DIFFERING = 0.5
"""The part of the histories in which nodes differ."""

_MOST_STEPS = 5_000
_LAST_EVENTS = 60
_REACH = 12 * SECOND
"""The maximum, in µs, by which write timestamps and clocks may be ahead of the cluster's clock."""


class BrokenSeed(AssertionError):
    """A seed's run broke a law. The message shows the last events and how to repeat the run."""


@frozen
class Run:
    """The result of a run: counts of its events, and a digest of the events.

    `losses` counts the leases lost to another process, and `expired` counts the spans of write
    time reported as lost.
    """

    scenario: Scenario
    rows: int
    generations: int
    restarts: int
    losses: int
    expired: int
    digest: str


def simulate(seed: int, *, snapshot: bool = False, differing: float = DIFFERING) -> Run:
    """Run the simulation with a seed. Raise BrokenSeed if a law is broken or a reader fails.

    With `snapshot`, the readers start with the existing rows. `differing` is the part of the seeds
    whose nodes differ.
    """
    rng = random.Random(seed)
    luck = random.Random(f"rivals of {seed}")
    scenario = with_rivals(draw(rng), luck)
    scenario = with_machine(scenario, random.Random(f"machine of {seed}"))
    if not snapshot:
        scenario = with_expiry(scenario, random.Random(f"expiry of {seed}"))
    else:
        scenario = with_snapshot(scenario, random.Random(f"snapshot of {seed}"))
    turns = random.Random(f"nodes of {seed}")
    scenario = with_nodes(scenario, turns, differing)
    with (
        _same_pauses(seed),
        _no_logging(),
        tuned(strategy=scenario.strategy, **scenario.tuning),
    ):
        world = World(scenario, rng, turns)
        try:
            applications = _run(world, scenario, rng, luck)
        except Exception as error:
            raise BrokenSeed(_story(seed, scenario, world, error)) from error
    digest = hashlib.sha256("\n".join(world.happened).encode()).hexdigest()
    restarts = sum(max(0, each.starts - 1) for each in applications)
    losses = sum({each.holding: each.holding.losses for each in applications}.values())
    expired = sum(len(past.lost) for past in {each.laws.past for each in applications})
    return Run(scenario, len(world.truth.rows), len(world.sets), restarts, losses, expired, digest)


def _run(
    world: World, scenario: Scenario, rng: random.Random, luck: random.Random
) -> list[Application]:
    world.begin()
    shards = [Shard(number + 1, scenario.shards) for number in range(scenario.shards)]
    beginning = Beginning(world)
    groups = [rivals(world, scenario, rng, luck, shard, beginning) for shard in shards]
    applications = [application for group in groups for application in group]
    bounded = BoundedReads(world, scenario, luck) if scenario.ttl else None
    while not world.is_calm:
        rng.choice(applications).step()
        if bounded is not None:
            bounded.step()
    until = world.clock.now() + _REACH
    for survivor, *_ in groups:  # other processes just end, and their leases expire
        _finish(survivor, until)
    if scenario.snapshot:
        beginning.finish()
    return applications


def _finish(application: Application, until: int) -> None:
    for _ in range(_MOST_STEPS):
        if application.is_through(until):
            application.finish(until)
            return
        application.step()
    raise LawBroken(f"after {_MOST_STEPS} steps still not past {until}")


def _same_pauses(seed: int) -> AbstractContextManager[object]:
    """Draw the pauses between attempts from the seed.

    Python's global random source would not do: threads of a driver that outlived an earlier test
    draw from it too.
    """
    return patch("tenacity.wait.random", random.Random(f"pauses of {seed}"))


@contextmanager
def _no_logging() -> Iterator[None]:
    """Turn logging off, because most failures are deliberate."""
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
