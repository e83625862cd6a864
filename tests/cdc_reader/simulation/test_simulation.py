"""Random histories with faults, crashes and restarts, and the laws that hold in each.

`SCYLLA_CDC_SEEDS` sets the number of histories (200 if unset), and `SCYLLA_CDC_SEED` sets the first
seed (1 if unset).
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from tests.cdc_reader.simulation.simulation import DIFFERING, BrokenSeed, Run, simulate

SEEDS = int(os.environ.get("SCYLLA_CDC_SEEDS", "200"))
FIRST = int(os.environ.get("SCYLLA_CDC_SEED", "1"))
_AT_A_TIME = 10
_FEW = 4

pytestmark = pytest.mark.needs("faults", "topology")


@pytest.mark.slow
def test_the_laws_hold_in_some_histories() -> None:
    """In a few random histories, no row is lost, repeated, out of order or saved too early."""
    _check_laws(range(FIRST, FIRST + _FEW))


def test_the_laws_hold_in_some_snapshots() -> None:
    """In a few random histories, the laws of snapshots and of following the log hold."""
    _check_laws(range(FIRST, FIRST + _FEW), snapshot=True)


@pytest.mark.parametrize(
    "snapshot", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["log", "snapshot"]
)
def test_the_laws_hold_in_some_histories_whose_nodes_differ(snapshot: bool) -> None:
    """The laws hold although one node at a time has not heard of the newest changes."""
    _check_laws(range(FIRST, FIRST + _FEW), snapshot=snapshot, differing=1.0)


@pytest.mark.slow
@pytest.mark.timeout(60 + 5 * SEEDS)
@pytest.mark.parametrize("snapshot", [False, True], ids=["log", "snapshot"])
def test_the_laws_hold_in_every_history(snapshot: bool) -> None:
    """The laws hold in all `SCYLLA_CDC_SEEDS` histories, which run in several processes."""
    runs = _check_laws(range(FIRST, FIRST + SEEDS), snapshot=snapshot)
    if SEEDS >= 100:
        _check_variety(runs)
        assert snapshot or sum(run.expired for run in runs) > len(runs) / 2


@pytest.mark.slow
def test_a_seed_repeats_its_run() -> None:
    """A seed produces the same events in every process, whatever Python's hash seed."""
    digests = {_digest(seed) for seed in ("0", "1", "random")}
    assert digests == {" ".join(simulate(seed).digest for seed in (1, 2, 3))}


def _check_laws(seeds: range, *, snapshot: bool = False, differing: float = DIFFERING) -> list[Run]:
    """Run the seeds and return their runs.

    If seeds break a law, the assertion message describes the first of them.
    """
    runs = list(_runs(seeds, partial(_run, snapshot=snapshot, differing=differing)))
    broken = [run for run in runs if isinstance(run, str)]
    assert not broken, "\n\n".join([f"{len(broken)} seeds are broken; the first:", broken[0]])
    return [run for run in runs if isinstance(run, Run)]


def _runs(seeds: range, run: Callable[[int], Run | str]) -> Iterator[Run | str]:
    if len(seeds) <= _AT_A_TIME:
        yield from map(run, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        yield from pool.map(run, seeds, chunksize=_AT_A_TIME)


def _run(seed: int, *, snapshot: bool, differing: float) -> Run | str:
    try:
        return simulate(seed, snapshot=snapshot, differing=differing)
    except BrokenSeed as error:
        return str(error)


def _digest(hash_seed: str) -> str:
    code = (
        "from tests.cdc_reader.simulation.simulation import simulate\n"
        "print(*(simulate(seed).digest for seed in (1, 2, 3)))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout.strip()


def _check_variety(runs: list[Run]) -> None:
    """Check that the runs cover all kinds of scenarios and that events are frequent enough."""
    scenarios = [run.scenario for run in runs]
    kinds = Counter((each.topology, str(each.config.delivery)) for each in scenarios)
    assert len(kinds) == 9
    assert len({(each.strategy, each.delivers_late_rows) for each in scenarios}) == 6
    assert sum(run.rows for run in runs) > 50 * len(runs)
    assert sum(run.generations for run in runs) > 2 * len(runs)
    assert sum(run.restarts for run in runs) > 1.5 * len(runs)
    assert sum(run.losses for run in runs) > len(runs) / 4
