"""Machines are isolated as documented, and leave nothing behind."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.machine import Isolation, Machine, best_isolation
from tests.cluster.network import Network

PROBE = "tests.cluster.programs.left_behind"
ROOT = Path(__file__).parents[2]
PATH = {"PATH": "/usr/bin:/bin"}
ALLOWED = list(Isolation)[list(Isolation).index(best_isolation()) :]
ISOLATED = [isolation for isolation in ALLOWED if isolation is not Isolation.NONE]


class Broken(Exception):
    """The error that fails a test on purpose."""


def start_sleeping(machine: Machine) -> subprocess.Popen[str]:
    """Start a program that sleeps, and return when it is running."""
    sleeping = machine.start(
        "sh", "-c", "echo ready; exec sleep 1001", env=PATH, stdout=subprocess.PIPE
    )
    assert sleeping.stdout is not None
    assert sleeping.stdout.readline() == "ready\n"
    return sleeping


@contextmanager
def two_machines(folder: Path, isolation: Isolation) -> Iterator[tuple[Network, list[Machine]]]:
    """Yield a network and two machines connected to it."""
    store, spark = folder / "store", folder / "spark"
    store.mkdir()
    spark.mkdir()
    with Network(isolation) as network:
        one, two = (
            Machine(
                f"machine-{number}",
                network.address(10 + number),
                folder / str(number),
                store,
                spark,
                isolation,
                hidden=(folder,),
            )
            for number in (1, 2)
        )
        with one, two:
            network.connect(one)
            network.connect(two)
            yield network, [one, two]


def links(pid: int) -> list[str]:
    """Return the network devices of a test process."""
    return [link for _, link in socket.if_nameindex() if link.startswith(f"cdc{pid}-")]


@pytest.mark.parametrize("isolation", ALLOWED)
def test_disks_and_store(isolation: Isolation, tmp_path: Path) -> None:
    """Programs write to their machine's disk and to the store. They see no hidden directories."""
    with two_machines(tmp_path, isolation) as (_, (one, two)):
        for machine in (one, two):
            write = (
                f"echo {machine.name} > own; echo {machine.name} > {machine.store}/{machine.name}"
            )
            assert machine.run("sh", "-c", write, env=PATH).returncode == 0
            assert (machine.disk / "own").read_text() == f"{machine.name}\n"
        assert two.run("cat", two.store / one.name, env=PATH).stdout == f"{one.name}\n"
        sees_other = two.run("cat", one.disk / "own", env=PATH).returncode == 0
        assert sees_other == (isolation is Isolation.NONE)


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ALLOWED)
def test_killed_processes(isolation: Isolation, tmp_path: Path) -> None:
    """A machine finds its processes by their command lines, and kills them with SIGKILL."""
    with two_machines(tmp_path, isolation) as (_, (one, two)):
        started = [start_sleeping(machine) for machine in (one, two)]
        assert one.kill("1001")
        assert started[0].wait() != 0
        assert one.pids("1001") == []
        assert two.pids("1001")
    assert started[1].poll() is not None


@pytest.mark.skipif(
    best_isolation() is not Isolation.NETWORK,
    reason="a machine's network is cut in a network namespace, which only root can make",
)
def test_cable(tmp_path: Path) -> None:
    """While its cable is cut, a machine cannot be reached."""
    with two_machines(tmp_path, Isolation.NETWORK) as (network, (one, two)):
        ping = f"timeout 1 bash -c 'exec 3<>/dev/tcp/{two.address}/9' 2>&1"

        def told() -> str:
            return one.run("sh", "-c", ping, env=PATH).stdout

        assert "refused" in told()
        network.cut(two)
        assert "refused" not in told()
        network.mend(two)
        assert "refused" in told()


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ALLOWED)
def test_nothing_is_left_after_a_failure(isolation: Isolation, tmp_path: Path) -> None:
    """After a failure, no processes or network devices remain."""
    machines: list[Machine] = []

    def fail() -> None:
        with two_machines(tmp_path, isolation) as (_, made):
            machines.extend(made)
            for machine in made:
                start_sleeping(machine)
            raise Broken

    with pytest.raises(Broken):
        fail()
    assert all(machine.pids() == [] for machine in machines)
    assert links(os.getpid()) == []


@pytest.mark.parametrize("isolation", ISOLATED)
def test_nothing_is_left_when_the_test_is_killed(isolation: Isolation, tmp_path: Path) -> None:
    """If the test is killed, the kernel ends all processes and removes the network."""
    command = [sys.executable, "-m", PROBE, str(tmp_path), isolation.name]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        pids = [int(pid) for pid in test.stdout.readline().split()]
        ended = [os.pidfd_open(pid) for pid in pids]
        test.send_signal(signal.SIGKILL)
    assert len(ended) >= 2
    for one in ended:
        select.select([one], [], [])
        os.close(one)
    while links(test.pid):  # the kernel removes networks in the background
        pass
