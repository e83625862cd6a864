"""`scylla-cdc status --watch`: on a terminal, in a pipe, and through an outage."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner, Result

from cdc_reader.checkpoints import SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.command import main
from cdc_reader.cli.following import CheckpointPlace
from cdc_reader.cli.status.counting import RowCounter
from cdc_reader.cli.status.history import Counted, Counts
from cdc_reader.cli.status.readers import SECOND
from cdc_reader.cli.status.screen import Lines
from cdc_reader.cli.status.state import StatusSource
from cdc_reader.cli.status.watch import Sampler, Watch
from cdc_reader.config import ConnectionConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CdcError
from cdc_reader.reading.progress import Checkpoint
from cdc_reader.reading.retry import Stop
from cdc_reader.testing import EmbeddedScylla, Fault, ManualClock

TABLE = TableName("ks", "t")
OUTAGE = Fault("unavailable", "system_schema.tables", times=None)
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


def watch(server: EmbeddedScylla, clock: Script, positions: Path | None = None) -> Watch:
    """Return a `Watch` that prints lines about the table every five seconds of `clock`."""
    source = StatusSource.open(
        ConnectionConfig(server.contact_point),
        None if positions is None else CheckpointPlace(positions),
        None,
        count=True,
        clock=clock,
        retry_deadline=timedelta(0),
    )
    return Watch(Sampler(source, [TABLE]), Lines(), clock, Stop(), 5 * SECOND)


def run(watch: Watch) -> None:
    """Run the `Watch`, and then close its source."""
    with closing(watch.sampler.source):
        watch.run()


def invoke(server: EmbeddedScylla, *arguments: str) -> Result:
    """Run the command, and return its result when it ends."""
    return CliRunner().invoke(main, ["status", "--hosts", server.contact_point, *arguments])


def test_in_a_pipe_it_prints_lines(server: EmbeddedScylla, positions: Path) -> None:
    """In a pipe, each line shows a time, the table and a subject, without control characters."""
    arguments = ("ks.t", "--checkpoint", str(positions), "--watch", "--for", "1ms")
    outcome = invoke(server, *arguments)
    assert outcome.exit_code == 0, outcome.output
    log, reader = outcome.stdout.splitlines()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(rf"{time}  ks\.t  generation since {time}  4 streams", log)
    lag = r"lag 10 min \d+ s  unread rows expire in \d+ min \d+ s"
    assert re.fullmatch(rf"{time}  ks\.t  app \(1/1\)  {lag}", reader)
    assert "\x1b" not in outcome.stdout
    [first] = map(json.loads, invoke(server, *arguments, "--json").stdout.splitlines())
    assert first["table"] == "ks.t"
    assert first["applications"][0]["lag_seconds"] == pytest.approx(600, abs=60)
    assert "rows_per_second" not in first


def test_an_outage_is_told_and_outlived(
    server: EmbeddedScylla, positions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """During an outage `status --watch` continues, with pauses that double up to a minute."""

    def strike() -> None:
        server.faults.add(OUTAGE)

    def nothing() -> None:
        pass

    clock = Script(now(), nothing, strike, *[nothing] * 5, server.faults.clear, nothing)
    run(watch(server, clock, positions))
    lines = [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    kinds = ["problem" if line.startswith("no answer: ") else "sample" for line in lines]
    # Each sample prints two lines: one for the log, one for the reader.
    assert kinds == ["sample"] * 4 + ["problem"] * 6 + ["sample"] * 4
    assert clock.pauses == [5, 5, 10, 20, 40, 60, 60, 60, 5, 5]
    assert lines[4].endswith("; trying again in 10 s")
    assert "gave up after 1 attempts" in lines[4]


def test_a_server_that_comes_back_is_watched_again(capsys: pytest.CaptureFixture[str]) -> None:
    """After an outage, a new connection is opened, without waiting for the driver to reconnect."""
    first = EmbeddedScylla(vnodes=4, shards=1).start()
    second = EmbeddedScylla(port=first.port, vnodes=6, shards=1)
    create(first)

    def come_back() -> None:
        second.start()
        create(second)

    clock = Script(now(), first.stop, come_back)
    try:
        run(watch(first, clock))
    finally:
        first.stop()
        second.stop()
    before, problem, after = capsys.readouterr().out.splitlines()
    assert before.endswith("  4 streams")
    assert "  no answer: " in problem
    assert after.endswith("  6 streams")
    assert clock.pauses == [5, 10, 5]


def test_the_error_of_the_first_sample_ends_it(server: EmbeddedScylla) -> None:
    """An error in the first sample, for example due to a mistyped name, ends `status --watch`."""
    outcome = invoke(server, "ks.nonesuch", "--watch")
    assert outcome.exit_code == 1
    assert outcome.stderr.startswith("Error: ")


def test_a_sample_costs_few_queries(server: EmbeddedScylla) -> None:
    """Each sample needs few queries: streams are listed once, and the log is never read."""
    schema, generations, log = (
        Fault("delay", name, times=None, seconds=1e-9)
        for name in ("system_schema", "system_distributed", "ks.t_scylla_cdc_log")
    )
    sent: list[int] = []

    def count() -> None:
        sent.append(server.faults.struck(schema) + server.faults.struck(generations))

    with server.faults.during(schema, generations, log):
        run(watch(server, Script(now(), count, count, count)))
        assert server.faults.struck(log) == 0
    first, second, third = (after - before for before, after in pairwise([0, *sent]))
    assert third == second < first
    assert second <= 10


def test_rows_are_counted_when_asked_for(server: EmbeddedScylla, clock: ManualClock) -> None:
    """Rows are counted from the given time up to one confidence window ago."""
    start = clock.now()
    connection = ConnectionConfig(server.contact_point)
    counter = RowCounter(connection, {TABLE: Checkpoint(start)}, clock)
    with closing(counter):
        clock.advance(10 * SECOND)
        for number in range(7):
            server.execute(f"INSERT INTO ks.t (p) VALUES ({number})")
        clock.advance(60 * SECOND)
        counter.catch_up()
        spans = list(counter.take(TABLE))
        assert sum(span.rows for span in spans) == 7
        assert (spans[0].start, spans[-1].end) == (start, start + 40 * SECOND)
        clock.advance(600 * SECOND)  # the default of `late_interval`
        late = start + 20 * SECOND
        server.execute(f"INSERT INTO ks.t (p) VALUES (99) USING TIMESTAMP {late}")
        server.execute("INSERT INTO ks.t (p) VALUES (100)")
        clock.advance(60 * SECOND)
        counter.catch_up()
        more = list(counter.take(TABLE))
    assert more[0].start == spans[-1].end
    assert sum(span.rows for span in more) == 1
    assert sum(span.late for span in more) == 1


def test_counting_goes_on_after_an_error(server: EmbeddedScylla, clock: ManualClock) -> None:
    """After an error, the counting of rows resumes, and no row is counted twice."""
    for number in range(3):
        server.execute(f"INSERT INTO ks.t (p) VALUES ({number})")
    start = clock.now() - SECOND
    clock.advance(60 * SECOND)
    counter = RowCounter(ConnectionConfig(server.contact_point), {TABLE: Checkpoint(start)}, clock)
    refused = Fault("unauthorized", "ks.t_scylla_cdc_log", times=None)
    with closing(counter):
        with server.faults.during(refused), pytest.raises(CdcError):
            counter.catch_up()
        counter.catch_up()
        assert sum(span.rows for span in counter.take(TABLE)) == 3


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
        arguments = ("ks.t", "--checkpoint", str(positions), "--watch", "--interval", "1s")
        counted = ("--rows-since", "earliest", "--hosts", server.contact_point)
        with Terminal(*arguments, *counted) as terminal:
            frame = r"ROWS/S.*APPLICATION.*app.*10 min"
            terminal.until(rf"{frame}.*\x1b\[1A.*{frame}")
            terminal.press_ctrl_c()
            assert terminal.ended() == 0, terminal.shown
    assert "\x1b[?25h" in terminal.shown.rpartition("\x1b[?25l")[2], "the cursor is hidden"
    assert "Traceback" not in terminal.shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--watch", "--interval", "999ms"], "--interval is '999ms': give at least 1s"),
        (["--interval", "5s"], "--interval is for --watch: add it, or leave --interval out"),
        (["--for", "5s"], "--for is for --watch: add it, or leave --for out"),
        (["--watch", "--for", "0s"], "--for is '0s': give a duration above zero"),
        (["--rows-since", "now"], "--rows-since is for --watch and --html: add one of them"),
        (["--watch", "--rows-since", "soon"], "--rows-since is 'soon': give 'earliest', 'now', "),
        (["--watch", "--checkpoint", "{file}", "--max-lag", "1h"], "--max-lag is an answer for o"),
    ],
)
def test_unusable_options_are_reported_in_one_line(
    server: EmbeddedScylla, positions: Path, arguments: list[str], message: str
) -> None:
    """Invalid options are rejected with exit status 2 and a one-line error."""
    outcome = invoke(server, "ks.t", *(text.format(file=positions) for text in arguments))
    assert outcome.exit_code == 2
    [line] = outcome.stderr.splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("behind", "shown"), [(40, "  2.0 rows/s  "), (600, "  2.0 (10 min 0 s ago) rows/s  ")]
)
def test_a_rate_of_long_ago_is_shown_with_its_age(
    server: EmbeddedScylla, behind: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate of new rows is shown with its age if counting has fallen behind."""
    at = now()
    watched = watch(server, Script(at))
    end = at - behind * SECOND
    counted = [Counted(end - 60 * SECOND, end, 120, 3)]
    watched.sampler.history.counts[TABLE] = Counts(counted)
    run(watched)
    [line] = capsys.readouterr().out.splitlines()
    assert shown in line
    assert line.endswith("3 late rows")
