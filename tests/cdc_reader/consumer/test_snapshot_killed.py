"""A consumer process that is killed at random moments during its snapshot."""

from __future__ import annotations

import os
import random
import signal
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import evolve, frozen

from cdc_reader.changes.change import Change
from cdc_reader.changes.delta import Assigned
from cdc_reader.checkpoints import SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cluster.values import murmur3
from cdc_reader.config import ConnectionConfig
from cdc_reader.consumer import CdcConsumer, ConsumerConfig
from cdc_reader.cql.names import TableName
from cdc_reader.streams.ring import WHOLE_RING, TokenRanges
from cdc_reader.testing import EmbeddedScylla
from tests.cdc_reader.consumer.conftest import PATIENCE, READ, now
from tests.cdc_reader.consumer.processes import CONTEXT

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

KILLS, ROWS, PARTITIONS = 20, 200_000, 20_000
READING = evolve(READ, fetch_size=500)
LINE = 24
"""The approximate length, in bytes, of a line that describes one row."""

Key = tuple[int, int]


@frozen
class Run:
    """One process: the lines it wrote, and the completed ranges before and after its run.

    The ranges are None if the snapshot is complete.
    """

    before: TokenRanges | None
    after: TokenRanges | None
    lines: list[tuple[str, Key, int | None]]


@frozen
class Runs:
    """The table that the processes read, and the directory for their output."""

    connection: ConnectionConfig
    table: str
    path: Path

    def file(self, run: int) -> Path:
        return self.path / f"run-{run}"

    def begin(self, run: int, end: int | None = None) -> BaseProcess:
        """Start the process of run number `run`."""
        process = CONTEXT.Process(target=_consume, args=(self, run, end))
        process.start()
        return process

    def killed(self, run: int, draw: random.Random) -> Run:
        """Start a process, kill it after a random number of rows, and return its `Run`."""
        before, rows = self.done(), draw.randrange(ROWS // KILLS)
        process = self.begin(run)
        while process.is_alive() and self._size(run) < rows * LINE:
            process.join(0.001)
        process.join(draw.uniform(0, 0.02))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        return Run(before, self.done(), self.handled(run))

    def handled(self, run: int) -> list[tuple[str, Key, int | None]]:
        """Return the operation, key and value of each complete line that run `run` wrote."""
        lines = self.file(run).read_text().split("\n")[:-1] if self.file(run).exists() else []
        found = (line.split() for line in lines)
        return [(k, (int(p), int(c)), None if v == "-" else int(v)) for k, p, c, v in found]

    def done(self) -> TokenRanges | None:
        """Return the completed ranges in the checkpoint, or None if the snapshot is complete."""
        store = SqliteCheckpoints(self.path / "checkpoints.db")
        kept = store.load(CheckpointName("app", TableName.parse(self.table)))
        store.close()
        if kept is None:
            return TokenRanges()
        return None if kept.snapshot is None else kept.snapshot.done

    def _size(self, run: int) -> int:
        return self.file(run).stat().st_size if self.file(run).exists() else 0


def _consume(runs: Runs, run: int, end: int | None) -> None:
    file = os.open(runs.file(run), os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def handle(change: Change) -> None:
        written = change.deltas.get("v")
        value = written.value if isinstance(written, Assigned) else "-"
        line = f"{change.operation} {change.key['p']} {change.key['c']} {value}\n"
        os.write(file, line.encode())

    CdcConsumer(
        runs.connection,
        runs.table,
        handle,
        application="app",
        snapshot="initial",
        end=end,
        read=READING,
        config=ConsumerConfig(workers=2, checkpoint_interval=timedelta(milliseconds=20)),
        checkpoints=SqliteCheckpoints(runs.path / "checkpoints.db"),
    ).run()


@pytest.fixture
def server() -> EmbeddedScylla:
    """A server with a table whose rows are not in its log."""
    server = EmbeddedScylla()
    server.execute(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    server.execute("CREATE TABLE ks.t (p int, c int, v int, PRIMARY KEY (p, c))")
    insert = "INSERT INTO ks.t (p, c, v) VALUES (?, ?, ?)"
    for number in range(ROWS):
        cells = (number % PARTITIONS, number, number)
        server.execute(insert, [cell.to_bytes(4, "big") for cell in cells])
    server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true}")
    return server


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.needs("faults")  # runs a separate server
def test_a_kill_repeats_only_rows_of_unfinished_ranges(
    server: EmbeddedScylla, tmp_path: Path
) -> None:
    """A kill repeats only rows of unfinished ranges, and loses nothing.

    The handled changes, applied in order, produce the table.
    """
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw, found = random.Random(seed), list[Run]()
    with server:
        runs = Runs(ConnectionConfig(f"{server.host}:{server.port}"), "ks.t", tmp_path)
        for run in range(KILLS):
            _write(server, draw)
            found.append(runs.killed(run, draw))
        before, last = runs.done(), runs.begin(KILLS, end=now())
        last.join(PATIENCE * 4)
        assert last.exitcode == 0
        found.append(Run(before, runs.done(), runs.handled(KILLS)))
        assert _copy(found) == _rows(server)
    repeated, done = _repeated(found), [each.after for each in found]
    shares = [None if it is None else round(it.size / WHOLE_RING.size, 2) for it in done]
    print(f"{repeated} rows repeated; share of the ring done after each run: {shares}")
    assert 0 < repeated < ROWS
    assert sum(share is not None and share > 0 for share in shares) > KILLS // 2


def _write(server: EmbeddedScylla, draw: random.Random) -> None:
    """Change, delete and insert some rows, in completed ranges and in unfinished ones."""
    for number in draw.sample(range(ROWS), 30):
        where = f"p = {number % PARTITIONS} AND c = {number}"
        server.execute(
            draw.choice(
                [
                    f"UPDATE ks.t SET v = {-number} WHERE {where}",
                    f"DELETE FROM ks.t WHERE {where}",
                    f"INSERT INTO ks.t (p, c, v) VALUES ({number % PARTITIONS}, {ROWS}, {number})",
                ]
            )
        )


def _copy(runs: list[Run]) -> dict[Key, int | None]:
    """Return the rows that result from all changes, applied in the order they were handled."""
    copy: dict[Key, int | None] = {}
    for run in runs:
        for operation, key, value in run.lines:
            if operation == "row_delete":
                copy.pop(key, None)
            else:
                copy[key] = value
    return copy


def _rows(server: EmbeddedScylla) -> dict[Key, int | None]:
    rows = server.execute("SELECT p, c, v FROM ks.t")
    numbers = ([int.from_bytes(cell or b"", "big", signed=True) for cell in row] for row in rows)
    return {(p, c): v for p, c, v in numbers}


def _repeated(runs: list[Run]) -> int:
    """Return the number of repeated rows. Fail if a row of a completed range was repeated."""
    first, count = set[Key](), 0
    for run in runs:
        rows = [key for operation, key, _ in run.lines if operation == "snapshot"]
        assert len(set(rows)) == len(rows), "twice in one run"
        assert run.before is not None or not rows, "the snapshot was complete"
        for key in rows:
            token = murmur3(key[0].to_bytes(4, "big"))
            assert not any(token in each for each in run.before or ()), "its range was done"
        count += len(first.intersection(rows))
        first.update(rows)
    return count
