"""The cluster, table, reader and faults that a seed determines."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import timedelta

from attrs import evolve, frozen

from cdc_reader._time import duration_micros
from cdc_reader.cluster.clock import TOLERANCE
from cdc_reader.config import DeliveryMode, LateRowsMode, ReadConfig

SECOND = 1_000_000
_DAY = 86_400 * SECOND
LARGEST_SKEW = SECOND
"""The largest difference, in µs, between a reader's or node's clock and the cluster's."""


@frozen
class Scenario:
    """The random choices of a run. Times are in µs, and chances are between 0 and 1.

    `tuning` and `strategy` are arguments of `tuned`. `topology` is ``vnodes``, ``tablets`` or
    ``4.3``. The clock of the readers' machine is `machine` ahead of the cluster's, and the readers'
    corrected clock is `skew` ahead. Writes start `history` before the reader, and last until
    `activity` after it starts. `start` is ``earliest``, ``now`` or ``past``. `fault` and `outage`
    are chances per query, and `crash` is the chance per query and per step of the handler. All
    other chances are per step of the handler. `small_pages` is the page size, in rows, of all
    tables except ks.t and its log.

    Each shard has `rivals` additional processes, which compete for its `lease` (µs). Without
    rivals, there is no lease. `nap` is the chance per step that a process is suspended, mostly for
    longer than a lease.

    Rows of the log expire after `ttl` µs, or never if `ttl` is 0. If they expire, `stall` is the
    chance per step that a reader is delayed for a long time. In that case, late rows are ignored,
    because losses are reported by write time.

    With `snapshot`, the readers start with the existing rows. Each shard starts `delay` µs after
    the previous one.

    The cluster has `nodes` nodes or more. If there are several, any of them answers a page;
    `sticks` is the chance that it is the one that answered the page before. With `differs`, one
    node at a time lags or is frozen.
    """

    topology: str
    config: ReadConfig
    tuning: Mapping[str, int]
    strategy: str
    images: str
    shards: int
    vnodes: int
    node_shards: int
    ring_delay: int
    skew: int
    history: int
    activity: int
    gap: int
    start: str
    crash: float
    fault: float
    outage: float
    stop: float
    laziness: float
    saving: float
    small_pages: int
    rivals: int = 0
    lease: int = 0
    nap: float = 0.0
    snapshot: bool = False
    delay: int = 0
    machine: int = 0
    ttl: int = 0
    stall: float = 0.0
    nodes: int = 1
    sticks: float = 0.0
    differs: bool = False

    @property
    def confidence(self) -> int:
        return duration_micros(self.config.confidence_window)

    @property
    def is_eager(self) -> bool:
        return self.config.delivery == DeliveryMode.EAGER

    @property
    def delivers_late_rows(self) -> bool:
        return self.config.late_rows == LateRowsMode.DELIVER


def draw(rng: random.Random) -> Scenario:
    """Draw a scenario. Most scenarios lack some kinds of faults, but few lack all of them."""
    activity = rng.randrange(25, 60)
    topology = rng.choices(["vnodes", "tablets", "4.3"], [6, 2, 2])[0]
    config, tuning, strategy = _reading(rng)
    return Scenario(
        topology=topology,
        config=config,
        tuning=tuning,
        strategy=strategy,
        images=rng.choice(["", ", 'preimage': true", ", 'preimage': 'full', 'postimage': true"]),
        shards=rng.choice([1, 1, 1, 2]),
        vnodes=rng.randrange(1, 4),
        node_shards=rng.randrange(1, 4),
        ring_delay=rng.choice([0, 2_000, 5_000, 15_000]),
        skew=rng.randint(-LARGEST_SKEW, LARGEST_SKEW),
        history=rng.choice([0, 10, 30]) * SECOND,
        activity=activity * SECOND,
        gap=activity * SECOND // rng.choice([15, 25, 40]),
        start=rng.choice(["earliest", "earliest", "now", "past"]),
        crash=rng.choice([0, 0.003, 0.02]),
        fault=rng.choice([0, 0.01, 0.1]),
        outage=rng.choice([0, 0, 0.003]),
        stop=rng.choice([0, 0.02]),
        laziness=rng.choice([0, 0.3, 0.8]),
        saving=rng.choice([0.1, 0.5, 1]),
        small_pages=rng.choices([2, 30], [1, 15])[0],
    )


def with_rivals(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return the scenario, with rival processes in three of five cases."""
    rivals = rng.choice([0, 0, 1, 1, 2])
    if not rivals:
        return scenario
    return evolve(
        scenario,
        rivals=rivals,
        lease=rng.choice([4, 8, 15]) * SECOND,
        nap=rng.choice([0, 0.1, 0.3]),
    )


def with_snapshot(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return the scenario, changed to start with a snapshot of a table that has rows."""
    delay = rng.choice([0, 0, 5, 20]) * SECOND
    shards, history = rng.choice([1, 2, 3]), max(scenario.history, 10 * SECOND)
    return evolve(scenario, snapshot=True, delay=delay, shards=shards, history=history)


def with_machine(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return the scenario. In one of four cases, the clock of the readers' machine is very wrong.

    The readers correct deviations above their tolerance.
    """
    machine = scenario.skew
    if rng.random() < 1 / 4:
        machine = rng.choice([-30 * _DAY, -_DAY, -60 * SECOND, 2 * SECOND, 60 * SECOND, _DAY])
    return evolve(scenario, machine=machine, skew=machine if abs(machine) <= TOLERANCE else 0)


def with_expiry(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return the scenario, with rows that expire during the run in one of three cases."""
    if rng.random() > 1 / 3:
        return scenario
    ttl = scenario.confidence + rng.choice([20, 30, 50]) * SECOND
    config = evolve(scenario.config, late_rows=LateRowsMode.IGNORE)
    return evolve(scenario, ttl=ttl, stall=rng.choice([0, 0.02, 0.1]), config=config)


def with_nodes(scenario: Scenario, rng: random.Random, differing: float) -> Scenario:
    """Return the scenario, with nodes that differ in a part `differing` of the cases."""
    if rng.random() >= differing:
        return scenario
    return evolve(scenario, nodes=3, sticks=rng.choice([0, 0.8, 0.97]), differs=True)


def _reading(rng: random.Random) -> tuple[ReadConfig, Mapping[str, int], str]:
    """Draw the settings of reads, and the arguments of `tuned`."""
    window, longest = _seconds(rng, 1, 5, 20, 60), _seconds(rng, 60, 3_600)
    confidence, pause = _seconds(rng, 4, 10, 30), _seconds(rng, 3, 5, 10)
    fetch_size = rng.choices([1, 3, 7, 100], [1, 3, 3, 3])[0]
    streams, in_flight = rng.choice([2, 8, 64]), rng.choice([1, 2, 8])
    retry_deadline = _seconds(rng, 10, 40)
    strategy = rng.choice(["streams", "ranges", "auto"])
    delivery = rng.choice([DeliveryMode.SETTLED, DeliveryMode.ORDERED, DeliveryMode.EAGER])
    eager_pause = timedelta(milliseconds=rng.choice([500, 2_000, 4_000]))
    late_rows = rng.choice([LateRowsMode.IGNORE, LateRowsMode.DELIVER])
    late_interval, patience = _seconds(rng, 5, 15, 40), _seconds(rng, 0, 10, 600)
    config = ReadConfig(
        window=window,
        confidence_window=confidence,
        poll_interval=eager_pause if delivery is DeliveryMode.EAGER else pause,
        fetch_size=fetch_size,
        retry_deadline=retry_deadline,
        delivery=delivery,
        late_rows=late_rows,
        late_horizon="1h",
        data_loss="continue",
    )
    tuning = {
        "longest_window": duration_micros(longest),
        "streams_per_query": streams,
        "in_flight": in_flight,
        "settle_interval": duration_micros(pause),
        "sorted_bytes": 2_000,
        "late_interval": duration_micros(late_interval),
        "publication_wait": duration_micros(patience),
    }
    return config, tuning, strategy


def _seconds(rng: random.Random, *choices: int) -> timedelta:
    return timedelta(seconds=rng.choice(choices))
