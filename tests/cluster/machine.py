"""Machines for tests, each with a disk, processes and, if root creates it, a network.

`best_isolation` finds the best isolation that this system allows:

- `NETWORK` needs root, `unshare`, `nsenter` and `ip`. Each machine has a separate address, with a
  cable that can be cut, a separate disk, and separate processes.
- `DISK` needs user namespaces, `unshare` and `nsenter`. Each machine has a separate loopback
  address, a separate disk, and separate processes.
- `NONE` needs nothing. Each machine has a separate loopback address, and a directory that other
  machines can see.

A machine's namespaces live as long as its first process, which reads a pipe from the test. When the
test ends, even by kill -9, the pipe closes, and the kernel ends all processes of the machine and
removes its network.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from enum import Enum
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from attrs import define, field

UNTIL_CLOSED = "echo ready && read -r _"
"""The command of a machine's first process: it reads until the test closes the pipe."""
_HOME, _STORE = Path("/srv"), Path("/mnt")
_MOUNT = f"""
set -e
mount --bind "$1" {_HOME}
mount --bind "$2" {_STORE}
mount --bind "$3" {_HOME}/spark
shift 3
for hidden; do mount -t tmpfs none "$hidden"; done
mount --bind {_HOME}/tmp /tmp
{UNTIL_CLOSED}
"""
_OWN_FILES = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


class Isolation(Enum):
    """The isolation of machines. Each value contains `unshare` options to add to `_OWN_FILES`."""

    NETWORK = ("--net",)
    DISK = ("--user", "--map-root-user")
    NONE = None


@cache
def best_isolation() -> Isolation:
    """Return the best isolation that this system allows."""
    for isolation in (Isolation.NETWORK, Isolation.DISK):
        probe = ["unshare", *isolation.value, *_OWN_FILES, "mount", "-t", "tmpfs", "none", "/mnt"]
        with suppress(FileNotFoundError):
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                return isolation
    return Isolation.NONE


def hold(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start the first process of new namespaces. It ends when its standard input is closed."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    with process.stdout as told:
        if told.readline() != "ready\n":
            raise OSError(f"{command[0]} ended with status {process.wait()}")
    return process


def release(process: subprocess.Popen[str]) -> None:
    """End the first process of some namespaces, which ends all other processes in them."""
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


@define(eq=False)
class Machine:
    """A machine with a name and an address.

    Its programs see its disk and the store at paths that are the same on all machines. `store` is
    the only directory that all machines share, like an object store. `spark` is a Spark
    installation, which the programs see as the directory `spark` of the disk. Programs must not see
    the `hidden` directories. `Network.connect` gives the machine a separate network, if
    `has_network` is True and the isolation allows a separate network.
    """

    name: str
    address: str
    disk: Path
    _store: Path
    _spark: Path
    _isolation: Isolation
    _hidden: Iterable[Path] = ()
    _has_network: bool = True
    pid: int = field(default=0, init=False)
    """The process that keeps the machine's namespaces."""
    _enter: tuple[str, ...] = field(default=(), init=False)
    _started: list[subprocess.Popen[str]] = field(factory=list, init=False)
    _stack: ExitStack = field(factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        (self.disk / "tmp").mkdir(parents=True)
        if self._isolation is Isolation.NONE:
            (self.disk / "spark").symlink_to(self._spark)
            return self
        (self.disk / "spark").mkdir()
        shares_network = self._isolation is Isolation.NETWORK and not self._has_network
        own = () if shares_network else self._isolation.value
        folders = map(str, (self.disk, self._store, self._spark, *self._hidden))
        first = hold(["unshare", *own, *_OWN_FILES, "sh", "-c", _MOUNT, "sh", *folders])
        self._stack.callback(release, first)
        self.pid = first.pid
        enter = ["nsenter", f"--target={first.pid}", "--mount"]
        enter.append(f"--pid=/proc/{first.pid}/ns/pid_for_children")
        if "--user" in own:
            enter += ["--user", "--preserve-credentials"]
        if "--net" in own:
            enter.append("--net")
        self._enter = tuple(enter)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self.kill():
            pass
        self._stack.close()
        for process in self._started:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    @property
    def has_network(self) -> bool:
        """True if the machine has a separate network, with a cable."""
        return self._has_network and self._isolation is Isolation.NETWORK

    @property
    def home(self) -> Path:
        """The machine's disk, as a path that its programs use."""
        return self.disk if self._isolation is Isolation.NONE else _HOME

    @property
    def store(self) -> Path:
        """The shared store, as a path that the machine's programs use."""
        return self._store if self._isolation is Isolation.NONE else _STORE

    def start(
        self, *command: str | Path, env: Mapping[str, str], **settings: Any
    ) -> subprocess.Popen[str]:
        """Start a program in the machine's home directory, in a new session."""
        inside = ("env", "-C", str(self.home), *map(str, command))
        process = subprocess.Popen(
            [*self._enter, *inside],
            env={"HOME": str(self.home), **env},
            start_new_session=True,
            text=True,
            **settings,
        )
        self._started.append(process)
        return process

    def run(self, *command: str | Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a program in the machine's home directory, and wait for it to end."""
        pipe = subprocess.PIPE
        process = self.start(*command, env=env, stdout=pipe, stderr=pipe)
        output, errors = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def pids(self, word: str = "") -> list[int]:
        """Return the ids of the machine's processes whose command line contains `word`."""
        sessions = {process.pid for process in self._started}
        found = []
        for pid in sorted(int(folder.name) for folder in Path("/proc").glob("[0-9]*")):
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_text()  # empty if the process has ended
                if command and word in command and os.getsid(pid) in sessions:
                    found.append(pid)
        return found

    def kill(self, word: str = "") -> list[int]:
        """Kill the processes with `word` in their command line (SIGKILL), and return their ids."""
        killed = self.pids(word)
        with ExitStack() as opened:
            ending = []
            for pid in killed:
                with suppress(ProcessLookupError):
                    process = os.pidfd_open(pid)
                    opened.callback(os.close, process)
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    ending.append(process)
            for process in ending:
                select.select([process], [], [])
        return killed
