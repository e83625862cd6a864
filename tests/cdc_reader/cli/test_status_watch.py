"""`scylla-cdc status --watch`: on a terminal, in a pipe, and through an outage."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner, Result

from cdc_reader.checkpoints import SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.command import main
from cdc_reader.cli.status.reader import SECOND
from cdc_reader.cli.status.run import repeat
from cdc_reader.cli.status.state import StatusSource
from cdc_reader.cluster import ClusterClock, Connection
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import TransientError
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.retry import Stop
from cdc_reader.testing import EmbeddedScylla, Fault, ManualClock

TABLE = TableName("ks", "t")
OUTAGE = TransientError("no node answers")
COMMAND = "from cdc_reader.cli import main; main()"
IN_TERMINAL = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C reaches only a terminal's own processes
from cdc_reader.cli import main
main()
"""


def now() -> int:
    """Return the time, in µs."""
    return time.time_ns() // 1_000


class Script(ManualClock):
    """A clock that performs one step of a script at each sleep, and then ends `status --watch`."""

    def __init__(self, start: int, *steps: Callable[[], object]) -> None:
        super().__init__(start)
        self.pauses: list[float] = []
        self._steps = list(steps)

    def sleep(self, micros: int, wake: threading.Event) -> None:
        super().sleep(micros, wake)
        self.pauses.append(micros / SECOND)
        if self._steps:
            self._steps.pop(0)()
        else:
            wake.set()


def create(server: EmbeddedScylla) -> None:
    """Create a table whose log keeps rows for an hour."""
    server.execute(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    server.execute(
        "CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 3600}"
    )


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the server."""
    return ManualClock(now())


@pytest.fixture
def server(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """A server with a table whose log keeps rows for an hour."""
    with EmbeddedScylla(vnodes=4, shards=1, clock=clock) as server:
        create(server)
        yield server


@pytest.fixture
def positions(tmp_path: Path) -> Path:
    """A file with the position of an application that lags by a little over ten minutes."""
    save(tmp_path / "positions.db", now() - 610 * SECOND)
    return tmp_path / "positions.db"


def save(file: Path, position: int) -> None:
    """Save the position of the application `app`."""
    store = SqliteCheckpoints(file)
    store.save(CheckpointName("app", TABLE), Checkpoint(position))
    store.close()


def run(clock: Script, show: Callable[[], object]) -> None:
    """Call `show` as `status --watch` does, without anything to reconnect."""
    repeat(show, lambda: None, clock, Stop())


def invoke(server: EmbeddedScylla, *arguments: str) -> Result:
    """Run the command, and return its result when it ends."""
    return CliRunner().invoke(main, ["status", "--hosts", server.contact_point, *arguments])


def test_in_a_pipe_it_prints_until_a_signal(server: EmbeddedScylla, positions: Path) -> None:
    """In a pipe, each sample is printed, without control characters; SIGINT ends with status 0."""
    line = [sys.executable, "-c", COMMAND, "status", "ks.t", "--watch"]
    line += ["--checkpoint", str(positions), "--hosts", server.contact_point]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        begin = "".join(iter(process.stdout.readline, "\n"))
        rest = "".join(iter(process.stdout.readline, "\n"))
        readers = process.stdout.readline() + process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert begin.startswith("ks.t at ")
    assert re.search(r"app +1/1 .* 10 min \d+ s +in ", readers)
    assert "\x1b" not in begin + rest + readers


def test_an_outage_is_told_and_outlived(capsys: pytest.CaptureFixture[str]) -> None:
    """An outage is reported at each attempt; after it, samples are shown again."""
    clock, samples = Script(now(), *[lambda: None] * 3), iter([None, OUTAGE, OUTAGE, None])
    shown: list[int] = []

    def show() -> None:
        if error := next(samples):
            raise error
        shown.append(len(clock.pauses))

    run(clock, show)
    assert shown == [0, 3]
    assert clock.pauses == [5] * 4
    first, _ = capsys.readouterr().err.splitlines()
    assert first.endswith("no answer: no node answers")


def test_a_server_that_comes_back_is_watched_again() -> None:
    """After an outage, a new connection is opened, without waiting for the driver to reconnect."""
    first = EmbeddedScylla(vnodes=4, shards=1).start()
    second = EmbeddedScylla(port=first.port, vnodes=6, shards=1)
    create(first)

    def come_back() -> None:
        second.start()
        create(second)

    config = ReadConfig(retry_deadline=timedelta(0))
    queries = Connection(ConnectionConfig(first.contact_point), config)
    source = StatusSource(queries, ClusterClock(queries), None, None, None, None)
    seen: list[int] = []

    def show() -> None:
        seen.append(source.of(TABLE).generations[-1].operates.start)

    try:
        repeat(show, queries.close, Script(now(), first.stop, come_back), Stop())
    finally:
        queries.close()
        first.stop()
        second.stop()
    assert len(set(seen)) == 2


def test_the_error_of_the_first_sample_ends_it(server: EmbeddedScylla) -> None:
    """An error in the first sample, for example due to a mistyped name, ends `status --watch`."""
    outcome = invoke(server, "ks.nonesuch", "--watch")
    assert outcome.exit_code == 1
    assert outcome.stderr.startswith("Error: ")


def test_a_sample_costs_few_queries(server: EmbeddedScylla) -> None:
    """Each sample needs few queries, and none of the log or of the streams."""
    schema, generations, streams, log = (
        Fault("delay", name, times=None, seconds=1e-9)
        for name in (
            "system_schema",
            "system_distributed",
            "cdc_streams_descriptions_v2",
            "ks.t_scylla_cdc_log",
        )
    )
    with server.faults.during(schema, generations, streams, log):
        assert invoke(server, "ks.t").exit_code == 0
        # One of them, the first of a connection to a single node, asks in vain for a quorum.
        assert server.faults.struck(schema) + server.faults.struck(generations) <= 11
        assert server.faults.struck(streams) + server.faults.struck(log) == 0


class Terminal:
    """A terminal with 120 columns and a running command."""

    def __init__(self, *arguments: str) -> None:
        self._end, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_TERMINAL, "status", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def until(self, pattern: str) -> None:
        """Read until the output matches the pattern."""
        while not re.search(pattern, self.shown, re.DOTALL):
            assert self._read(), self.shown

    def press_ctrl_c(self) -> None:
        """Send the character that the terminal turns into SIGINT."""
        os.write(self._end, b"\x03")

    def ended(self) -> int:
        """Read the remaining output, and return the exit status."""
        while self._read():
            pass
        return self.process.wait()

    def _read(self) -> bool:
        """Read the available output. Return False once the command has closed the terminal."""
        try:
            data = os.read(self._end, 65_536)
        except OSError:  # Linux raises this error once the other end is closed
            return False
        self.shown += data.decode()
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)


def test_on_a_terminal_it_redraws_until_ctrl_c(positions: Path) -> None:
    """On a terminal, tables are redrawn in place.

    Ctrl-C shows the cursor again and exits with status 0.
    """
    with EmbeddedScylla(vnodes=4, shards=1) as server:
        create(server)
        arguments = ("ks.t", "--checkpoint", str(positions), "--watch")
        with Terminal(*arguments, "--hosts", server.contact_point) as terminal:
            frame = r"BEGINS.*APPLICATION.*app.*10 min"
            terminal.until(rf"{frame}.*\x1b\[1A.*{frame}")
            terminal.press_ctrl_c()
            assert terminal.ended() == 0, terminal.shown
    assert "\x1b[?25h" in terminal.shown.rpartition("\x1b[?25l")[2], "the cursor is hidden"
    assert "Traceback" not in terminal.shown
