"""A streaming query in separate processes, as the test sees it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from attrs import frozen

from cdc_reader._time import SystemClock

SCRIPT = Path(__file__).with_name("following_query.py")
SHORT_STEPS = {
    "consistencyLevel": "ONE",
    "confidenceWindow": "1s",
    "maxPartitions": "2",
}
"""Options of a query that advances in small micro-batches."""
FAILURES = 3
"""The query counts as lost after this number of consecutive failures without a micro-batch."""


class Role(Enum):
    """A process's role in the query. The value occurs only in command lines of such processes."""

    DRIVER = SCRIPT.name
    JVM = "bin/java"
    SOURCE = "python_streaming_source_runner"
    """The process that decides how far the log may be read, and plans the reads."""
    TASKS = "pyspark.worker"
    """The processes that read the log: one that forks, and its children."""


@frozen
class MicroBatch:
    """The report on a finished micro-batch: rows, next position (µs), and the JVM's heap (MB)."""

    rows: int
    position: int
    heap: float


class FollowedQuery:
    """A query that writes a log's rows to `folder`, and restarts after each of its `failures`."""

    def __init__(self, folder: Path, options: dict[str, str]) -> None:
        self.folder = folder
        self.failures: list[str] = []
        self._options = json.dumps(options)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start the query, from its checkpoint if it has one, in a separate process group."""
        with (self.folder / "stderr.log").open("ab") as errors:
            self._process = self._launch(errors)

    def _launch(self, errors: IO[bytes]) -> subprocess.Popen[str]:
        """Start the driver process. Its standard output is a pipe."""
        return subprocess.Popen(
            [sys.executable, str(SCRIPT), str(self.folder), self._options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill the driver with all processes that it started, Python and JVM."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def kill_some(self, role: Role, chance: random.Random) -> bool:
        """Kill one or more workers with this role, and return False if there are none."""
        workers = self.pids(role)
        for pid in chance.sample(workers, chance.randint(1, len(workers)) if workers else 0):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(workers)

    def kill_within(self, seconds: float, role: Role, chance: random.Random) -> None:
        """Kill processes with this role at a random moment within the next `seconds`.

        A killed driver is restarted. A query that loses workers recovers by itself.
        """
        self.stay(chance.uniform(0, seconds))
        if role is Role.DRIVER:
            self.kill()
            self.start()
        else:
            while not self.kill_some(role, chance):  # earlier kills have not been noticed yet
                self.next_batch()

    def pids(self, role: Role) -> list[int]:
        """Return the ids of the processes with this role."""
        return [pid for pid, command in self._commands().items() if role.value in command]

    def resident_mb(self, role: Role) -> float:
        """Return the resident memory of the largest process with this role, in MB."""
        return max(map(_resident_mb, self.pids(role)))

    def next_batch(self) -> MicroBatch:
        """Wait for the end of the next micro-batch, and return its report."""
        failures = 0
        while failures < FAILURES:
            told = json.loads(self._next_line())
            if "failed" not in told:
                return MicroBatch(**told)
            failures += 1
            self.failures.append(told["failed"])
        raise AssertionError(f"the query fails again and again: {self.failures[-1]}")

    def await_written(self, write: Callable[[int], object]) -> None:
        """Write a last row, at the given timestamp, and wait until all rows are in the sink."""
        now = SystemClock().now()
        write(now)
        while self.next_batch().position <= now:
            pass

    def stay(self, seconds: float) -> None:
        """Let the query run for `seconds`, and fail if it ends."""
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"it ended by itself: {self._process.wait(seconds)}")

    def _next_line(self) -> str:
        assert self._process.stdout is not None
        line: str = self._process.stdout.readline()
        assert line, f"the driver ended by itself; see {self.folder}"
        return line

    def _commands(self) -> dict[int, str]:
        """Return the command lines of all processes in the query's session, by process id."""
        found = {}
        for pid in sorted(int(folder.name) for folder in Path("/proc").glob("[0-9]*")):
            with suppress(OSError):
                if os.getsid(pid) == self._process.pid:
                    found[pid] = Path(f"/proc/{pid}/cmdline").read_text()
        return found


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
