"""A network of machines: a bridge with a cable to each machine, or else the loopback interface."""

from __future__ import annotations

import itertools
import os
import subprocess
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from attrs import define, field

from tests.cluster.machine import UNTIL_CLOSED, Isolation, Machine, hold, release

_NODES = 4
"""Number of addresses for the host that runs the test. ScyllaDB nodes listen on them."""
_COUNT = itertools.count()
_SWITCH = f"""
set -e
ip link add switch type bridge
ip link set switch up
{UNTIL_CLOSED}
"""


@define(eq=False)
class Network:
    """The addresses 1 to 254 of a network. The first ones are for the host that runs the test.

    The bridge is in a separate namespace, so that it does not outlive the test. Addresses are in
    198.18.0.0/15, which is reserved for network tests (RFC 2544).
    """

    isolation: Isolation
    _number: int = field(factory=lambda: next(_COUNT), init=False)
    _switch: int = field(default=0, init=False)
    _stack: ExitStack = field(factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        if self.isolation is Isolation.NETWORK:
            with ExitStack() as stack:
                first = hold(["unshare", "--net", "sh", "-c", _SWITCH])
                stack.callback(release, first)
                self._switch = first.pid
                self._lay("test", f"{self._link} netns {os.getpid()}")
                stack.callback(_run, *f"ip link delete {self._link}".split())
                self._connect_test()
                self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def _link(self) -> str:
        """The name of the host's end of the cable between the host and the bridge."""
        return f"cdc{os.getpid()}-{self._number}"

    def address(self, number: int) -> str:
        """Return the address with this number."""
        high, low = divmod((7 * os.getpid() + self._number) % 512, 256)
        first = 198 if self.isolation is Isolation.NETWORK else 127
        return f"{first}.{18 + high}.{low}.{number}"

    def connect(self, machine: Machine) -> None:
        """Connect a machine that has a separate network."""
        if not machine.has_network:
            return
        inside = ("nsenter", f"--target={machine.pid}", "--net")
        self._lay(machine.name, f"eth0 netns {machine.pid}")
        _run(*inside, *f"ip address add {machine.address}/24 dev eth0".split())
        for link in ("eth0", "lo"):
            _run(*inside, *f"ip link set {link} up".split())

    def cut(self, machine: Machine) -> None:
        """Cut a machine's cable."""
        self._on_switch(f"ip link set {machine.name} down")

    def mend(self, machine: Machine) -> None:
        """Mend a machine's cable."""
        self._on_switch(f"ip link set {machine.name} up")

    def _connect_test(self) -> None:
        for number in range(1, _NODES + 1):
            _run(*f"ip address add {self.address(number)}/24 dev {self._link}".split())
        _run(*f"ip link set {self._link} up".split())

    def _lay(self, port: str, end: str) -> None:
        self._on_switch(f"ip link add {port} type veth peer name {end}")
        self._on_switch(f"ip link set {port} master switch up")

    def _on_switch(self, command: str) -> None:
        _run("nsenter", f"--target={self._switch}", "--net", *command.split())


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
