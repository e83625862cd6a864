"""`scylla-cdc replicate --initial-copy`, which starts with the existing rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cassandra.cluster import Session

from cdc_reader.testing import EmbeddedScylla, Fault
from tests.cdc_reader.cli.test_replicate import (
    COLUMNS,
    TO_NOW,
    WRITES,
    applied,
    arguments,
    contents,
    copy,
    invoke,
    running,
    table,
)

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

__all__ = ["copy", "table"]  # fixtures

pytestmark = pytest.mark.needs("topology")

WITH_LOG = "AND cdc = {'enabled': true, 'preimage': true}"
ROWS, KILLS = 400, 3


@pytest.fixture
def without_log(scylla: Scylla, table: str) -> str:
    """Create the table with rows that are not in its log."""
    for statement in WRITES:
        scylla.session.execute(statement.format(t=table))
    scylla.session.execute(f"ALTER TABLE {table} WITH cdc = {{'enabled': false}}")
    for number in range(ROWS):
        scylla.session.execute(
            f"INSERT INTO {table} (p, c, v, l, m, us) VALUES ({number % 40}, {number}, 'a', "
            f"['x', 'y'], {{'k': 1}}, [{{a: {number}}}]) USING TTL {6000 + 600 * (number % 2)}"
        )
    scylla.session.execute(f"ALTER TABLE {table} WITH {WITH_LOG.removeprefix('AND ')}")
    return table


@pytest.mark.usefixtures("without_log")
def test_the_target_becomes_the_table_and_stays_so(
    scylla: Scylla, copy: str, there: Session, target: EmbeddedScylla, tmp_path: Path
) -> None:
    """A copy equals its source, even in write times and TTLs. A rerun applies further changes.

    At the end, `compare` finds no difference.
    """
    words = arguments(scylla, copy, target, tmp_path, *TO_NOW)
    first = invoke(*words, "--initial-copy")
    assert first.exit_code == 0, first.output
    assert " from now, after the rows it has; " in first.stderr
    [[rows]] = scylla.session.execute(f"SELECT COUNT(*) FROM {copy}")
    assert f"{copy}: snapshot: {rows:,} rows, 100%" in first.stderr
    assert f"stopped: {rows:,} rows of the table read, 0 changes applied" in first.stderr
    assert contents(there, copy) == contents(scylla.session, copy)
    for statement in (
        "UPDATE {t} SET l = l + ['z'], m = m - {{'k'}}, st = 5 WHERE p = 7 AND c = 7",
        "UPDATE {t} SET l = l - ['x'] WHERE p = 7 AND c = 47",
        "DELETE FROM {t} WHERE p = 3",
    ):
        scylla.session.execute(statement.format(t=copy))
    assert applied(invoke(*words, "--initial-copy").stderr) == 4
    assert contents(there, copy) == contents(scylla.session, copy)
    compared = invoke("compare", scylla.contact_point, copy, target.contact_point)
    assert compared.exit_code == 0, compared.output


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("without_log")
def test_killed_under_writes_it_goes_on(
    scylla: Scylla, copy: str, there: Session, target: EmbeddedScylla, tmp_path: Path
) -> None:
    """Runs are killed by SIGKILL at random moments, and the last run makes the tables equal.

    The last run copies the remaining rows. It continues the copy even without --initial-copy,
    because the checkpoint records an unfinished copy.
    """
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    words = arguments(scylla, copy, target, tmp_path, "--workers", "2")
    unsettled = (*words, "--initial-copy", "--confidence-window", "1s")
    target.faults.add(Fault.parse(f"delay,match={copy},times={4 * ROWS},seconds=0.02"))
    for _ in range(KILLS):
        begun = _count(there, copy)
        with running([*unsettled]) as (
            process,
            greeting,
        ):
            assert greeting.startswith("replicating ")
            while _count(there, copy) < min(begun + draw.randrange(1, ROWS // 4), ROWS // 2):
                _write(scylla.session, copy, draw)
                assert process.poll() is None
            process.kill()
            process.wait()
    target.faults.clear()
    last = invoke(*words, *TO_NOW)
    assert last.exit_code == 0, last.output
    assert "rows of the table read" in last.stderr
    compared = invoke("compare", scylla.contact_point, copy, target.contact_point)
    assert compared.exit_code == 0, compared.output
    assert contents(there, copy) == contents(scylla.session, copy)


def _count(session: Session, table: str) -> int:
    return int(session.execute(f"SELECT count(*) FROM {table}").one()[0])


def _write(session: Session, table: str, draw: random.Random) -> None:
    """Change, delete or insert a row that may or may not have been copied yet."""
    number = draw.randrange(ROWS)
    where = f"WHERE p = {number % 40} AND c = {number}"
    new = f"({number % 40}, {number}, 'new', ['n'])"
    session.execute(
        draw.choice(
            [
                f"INSERT INTO {table} (p, c, v, l) VALUES {new}",
                f"UPDATE {table} SET v = '{draw.random()}', l = l + ['w'] {where} IF EXISTS",
                f"UPDATE {table} SET l = l - ['x'], m['k'] = 2 {where} IF EXISTS",
                f"UPDATE {table} SET st = {number} WHERE p = {number % 40}",
                f"DELETE FROM {table} {where}",
                f"DELETE FROM {table} WHERE p = {number % 40} AND c > {number}",
            ]
        )
    )


def test_what_cannot_be_copied_is_told(
    scylla: Scylla, keyspace: str, copy: str, there: Session, target: EmbeddedScylla, tmp_path: Path
) -> None:
    """The command rejects `--from`, a target that has rows, and a list column without images."""
    words = arguments(scylla, copy, target, tmp_path, *TO_NOW, "--initial-copy")
    assert invoke(*words, "--from", "earliest").exit_code == 2
    there.execute(f"INSERT INTO {copy} (p, c) VALUES (1, 1)")
    found = invoke(*words)
    assert found.exit_code == 1
    assert f'has rows, and --initial-copy begins with an empty table: TRUNCATE "{keyspace}"' in (
        found.stderr
    )
    scylla.session.execute(f"CREATE TABLE {keyspace}.plain {COLUMNS} AND cdc = {{'enabled': true}}")
    there.execute(f"CREATE TABLE {keyspace}.plain {COLUMNS}")
    words = arguments(scylla, f"{keyspace}.plain", target, tmp_path, "--initial-copy")
    found = invoke(*words)
    assert found.exit_code == 1
    assert f'table {keyspace}.plain has a list, "l"; only the log\'s images' in found.stderr
