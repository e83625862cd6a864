"""A streaming query on tablets, whose nodes hear of streams and columns at different times.

`SCYLLA_CDC_SEEDS` sets the number of histories (5 if unset), and `SCYLLA_CDC_SEED` sets the first
seed (1 if unset).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator

import pytest
from cassandra.cluster import Session

from cdc_reader.testing import EmbeddedScylla, ManualClock
from tests.connectors.pyspark_scylla_cdc.support.followed_log import FollowedLog, create_table

SECOND = 1_000_000
SEEDS = int(os.environ.get("SCYLLA_CDC_SEEDS", "5"))
FIRST = int(os.environ.get("SCYLLA_CDC_SEED", "1"))
LONGEST_LAG = 45 * SECOND
ACTIONS = ["write"] * 6 + ["poll"] * 5 + ["restart", "split", "merge", "lag", "lag", "release"]

Make = Callable[..., FollowedLog]


@pytest.fixture
def cluster(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """Three nodes that share the clock."""
    with EmbeddedScylla(clock=clock, nodes=3, vnodes=4) as server:
        yield server


@pytest.fixture
def tablets(session: Session, clock: ManualClock, follow: Make) -> Make:
    """Follows a table `ks.t` that uses tablets."""
    clock.advance(600 * SECOND)
    create_table(session, tablets="{'initial': 2}")
    return follow


def check_history(seed: int, cluster: EmbeddedScylla, followed: FollowedLog) -> None:
    """Follow the log while one node at a time lags, and streams split and merge.

    Each row is delivered in exactly one micro-batch, and in every attempt at this micro-batch.
    """
    draw, rows, tablets = random.Random(seed), 0, 2
    for _ in range(80):
        followed.clock.advance(draw.randrange(12 * SECOND))
        match draw.choice(ACTIONS):
            case "write":
                followed.write(rows)
                rows += 1
            case "poll":
                followed.step_twice(draw)
            case "restart":
                followed.step(commit=False)
                followed.start()
            case "split" if tablets < 16:
                cluster.split_tablets("ks", "t")
                tablets *= 2
            case "merge" if tablets > 1:
                cluster.merge_tablets("ks", "t")
                tablets //= 2
            case "lag":
                _release(cluster)
                cluster.lag(draw.choice(cluster.nodes[1:]), draw.randrange(LONGEST_LAG))
            case "release":
                _release(cluster)
    _release(cluster)
    followed.run(100)
    assert followed.delivered == list(range(rows))


def _release(cluster: EmbeddedScylla) -> None:
    for node in cluster.nodes:
        cluster.release(node)


def test_a_history(cluster: EmbeddedScylla, tablets: Make) -> None:
    """In a random history, no row is lost or repeated."""
    check_history(FIRST, cluster, tablets())


@pytest.mark.slow
@pytest.mark.parametrize("late_rows", ["report", "deliver"])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_every_history(cluster: EmbeddedScylla, tablets: Make, seed: int, late_rows: str) -> None:
    """In every random history, no row is lost or repeated, whether late rows are wanted or not."""
    check_history(seed, cluster, tablets(lateRows=late_rows))
