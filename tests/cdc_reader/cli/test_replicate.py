"""`scylla-cdc replicate`, from the server under test to an embedded server."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from cassandra.cluster import Session
from click.testing import CliRunner

from cdc_reader.checkpoints import SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.command import main
from cdc_reader.cli.replicate import Report
from cdc_reader.consumer.events import WindowHandled
from cdc_reader.cql.names import TableName
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla, Fault, ManualClock
from cdc_reader.testing.cql_session import open_session
from tests.cdc_reader.replication.test_replicator import rows_of
from tests.recordings.replay import raw_select

if TYPE_CHECKING:
    from click.testing import Result

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.needs("topology")

SECOND = 1_000_000
COLUMNS = (
    "(p int, c int, v text, l list<text>, m map<text, int>, u pair, st int static, "
    'us frozen<list<frozen<pair>>>, "Odd ""name" set<int>, PRIMARY KEY (p, c)) '
    "WITH CLUSTERING ORDER BY (c DESC)"
)
WRITES = (
    "INSERT INTO {t} (p, c, v, l, m, u) VALUES (1, 1, 'a', ['x', 'y'], {{'k': 1}}, {{a: 1}})",
    "UPDATE {t} SET us = [{{a: 2, b: 'c'}}] WHERE p = 1 AND c = 1",
    "UPDATE {t} SET l = ['w'] + l, m['q'] = 2, u.a = 5 WHERE p = 1 AND c = 1",
    "UPDATE {t} USING TTL 6000 SET v = 'brief' WHERE p = 1 AND c = 2",
    'UPDATE {t} SET st = 7, "Odd ""name" = {{1, 2}} WHERE p = 1 AND c = 3',
    "DELETE v FROM {t} WHERE p = 1 AND c = 1",
    "INSERT INTO {t} (p, c, v) VALUES (2, 5, 'gone')",
    "INSERT INTO {t} (p, c, v) VALUES (2, 9, 'stays')",
    "DELETE FROM {t} WHERE p = 2 AND c > 4 AND c <= 5",
    "INSERT INTO {t} (p, c, v) VALUES (3, 1, 'gone')",
    "DELETE FROM {t} WHERE p = 3",
    "INSERT INTO {t} (p, c, v) VALUES (3, 2, 'back')",
)
FACTS = "p, c, writetime(v), ttl(v), writetime(st)"
TO_NOW = ("--until", "now", "--confidence-window", "0s")
"""Options that end a run at the current time.

No row is late, because the only writer awaits each response.
"""


@pytest.fixture
def table(scylla: Scylla, keyspace: str, there: Session) -> Iterator[str]:
    """A table with columns of many types. The target has a keyspace with the same name."""
    scylla.session.execute(f"CREATE TYPE {keyspace}.pair (a int, b text)")
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t {COLUMNS} AND cdc = {{'enabled': true, 'preimage': true}}"
    )
    create_keyspace(there, keyspace)
    yield f"{keyspace}.t"
    there.execute(f"DROP KEYSPACE {keyspace}")


@pytest.fixture
def copy(table: str, there: Session) -> str:
    """The name of the table, which this fixture also creates on the target."""
    create_copy(there, table)
    return table


def create_keyspace(session: Session, keyspace: str) -> None:
    """Create a keyspace with one replica."""
    session.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    )


def create_copy(session: Session, table: str) -> None:
    """Create the table, without CDC, and its user-defined type."""
    session.execute(f"CREATE TYPE {TableName.parse(table).keyspace}.pair (a int, b text)")
    session.execute(f"CREATE TABLE {table} {COLUMNS}")


def arguments(
    scylla: Scylla, table: str, target: EmbeddedScylla, tmp_path: Path, *more: str
) -> list[str]:
    """Return the arguments after ``scylla-cdc``."""
    file = str(tmp_path / "position")
    hosts = scylla.contact_point, target.contact_point
    return ["replicate", hosts[0], table, hosts[1], "--checkpoint", file, *more]


def invoke(*words: str, **variables: str) -> Result:
    """Run the command, and return its result when it ends."""
    return CliRunner().invoke(main, list(words), env=variables)


@contextmanager
def running(words: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the process, and yield the process and the first line that it prints."""
    command = [sys.executable, "-c", "from cdc_reader.cli import main; main()"]
    process = subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield process, process.stderr.readline()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def contents(session: Session, table: str, facts: str = FACTS) -> list[list[str]]:
    """Return all rows with the write times and TTLs of their cells."""
    queries = (f"SELECT * FROM {table}", f"SELECT {facts} FROM {table}")
    return [rows_of(raw_select(session, query)) for query in queries]


def applied(text: str) -> int:
    """Return the number of applied changes in the command's last message."""
    found = re.search(r"^stopped: ([\d,]+) changes applied", text, re.MULTILINE)
    assert found, text
    return int(found[1].replace(",", ""))


def test_the_copy_is_the_table(
    scylla: Scylla, table: str, copy: str, there: Session, target: EmbeddedScylla, tmp_path: Path
) -> None:
    """The copy has the table's cells, write times and TTLs, and a second run applies nothing."""
    for statement in WRITES:
        scylla.session.execute(statement.format(t=table))
    words = arguments(scylla, table, target, tmp_path, *TO_NOW)
    outcome = invoke(*words)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout == ""
    assert applied(outcome.stderr) >= len(WRITES)
    assert contents(there, copy) == contents(scylla.session, table)
    again = invoke(*words)
    assert applied(again.stderr) == 0
    assert "where the last run stopped" in again.stderr


def test_the_position_is_kept_at_the_given_place(
    scylla: Scylla,
    copy: str,
    there: Session,
    target: EmbeddedScylla,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The position is stored in a file named after the tables or, by option, in the target."""
    monkeypatch.chdir(tmp_path)
    scylla.session.execute(WRITES[0].format(t=copy))
    words = ["replicate", scylla.contact_point, copy, target.contact_point, *TO_NOW]
    file = f"replicate-{copy}-to-{copy}.db"
    table = f"{copy}_positions"
    for more, place in (((), file), (("--checkpoint-table", table), f"table {table}")):
        first, second = (invoke(*words, *more) for _ in range(2))
        assert f"the position is kept in {place}\n" in first.stderr
        assert (applied(first.stderr), applied(second.stderr)) == (1, 0)
    assert [path.name for path in tmp_path.glob("*.db")] == [file]
    kept = {row.shard for row in there.execute(f"SELECT shard FROM {table}")}
    assert kept == {"0/copy", "1/1"}


@pytest.mark.slow
@pytest.mark.parametrize("in_table", [False, True])
def test_a_copy_that_was_made_anew_is_refused(
    scylla: Scylla,
    table: str,
    copy: str,
    there: Session,
    target: EmbeddedScylla,
    tmp_path: Path,
    *,
    in_table: bool,
) -> None:
    """A recreated target is rejected, because the stored position belongs to the earlier table.

    Without the position, the new table gets all rows.
    """
    for statement in WRITES:
        scylla.session.execute(statement.format(t=table))
    words = ["replicate", scylla.contact_point, table, target.contact_point, *TO_NOW]
    place = f"{table}_positions" if in_table else str(tmp_path / "position")
    words += ["--checkpoint-table" if in_table else "--checkpoint", place]
    assert invoke(*words).exit_code == 0
    there.execute(f"DROP TABLE {copy}")
    there.execute(f"CREATE TABLE {copy} {COLUMNS}")
    for more in ((), ("--initial-copy",)):
        refused = invoke(*words, *more)
        assert refused.exit_code == 1
        assert re.fullmatch(
            rf"Error: table {copy} at {target.contact_point} was dropped and created again, or "
            rf"is in another cluster: the position in .*{re.escape(place)} belongs to the copy "
            r"with id [\w-]+, but this table has id [\w-]+; delete the position or give another "
            r"place for it, and start anew with --initial-copy\n",
            refused.stderr,
        )
    if in_table:
        there.execute(f"TRUNCATE {place}")
    else:
        Path(place).unlink()
    assert invoke(*words).exit_code == 0
    assert contents(there, copy) == contents(scylla.session, table)


def test_the_position_belongs_to_the_tables(
    scylla: Scylla, copy: str, target: EmbeddedScylla, tmp_path: Path
) -> None:
    """A run through other contact points resumes, but a run for another cluster is rejected."""
    scylla.session.execute(WRITES[0].format(t=copy))
    words = [copy, "--checkpoint", str(tmp_path / "position"), *TO_NOW]

    def replicate(source: str, target: str) -> Result:
        return invoke("replicate", source, words[0], target, *words[1:])

    assert replicate(scylla.contact_point, target.contact_point).exit_code == 0
    port = target.contact_point.rpartition(":")[2]
    moved = replicate(scylla.contact_point, f"localhost:{port}")
    assert applied(moved.stderr) == 0
    assert "where the last run stopped" in moved.stderr
    with EmbeddedScylla() as other:
        session = open_session(other.host, other.port)
        create_keyspace(session, TableName.parse(copy).keyspace)
        create_copy(session, copy)
        to_other = replicate(scylla.contact_point, other.contact_point)
        assert f"Error: table {copy} at {other.contact_point} was dropped" in to_other.stderr
        assert " or is in another cluster: the position in " in to_other.stderr
        session.execute(f"ALTER TABLE {copy} WITH cdc = {{'enabled': true}}")
        session.cluster.shutdown()
        from_other = replicate(other.contact_point, target.contact_point)
        assert f"Error: table {copy} was dropped and created again, or" in from_other.stderr
    assert (to_other.exit_code, from_other.exit_code) == (1, 1)


def test_a_restart_resumes(
    scylla: Scylla, keyspace: str, there: Session, target: EmbeddedScylla, tmp_path: Path
) -> None:
    """After SIGTERM the exit status is 0, and a second run applies only the remaining changes."""
    name, count = f"{keyspace}.many", 300
    columns = "(p int, c int, v int, PRIMARY KEY (p, c))"
    scylla.session.execute(f"CREATE TABLE {name} {columns} WITH cdc = {{'enabled': true}}")
    create_keyspace(there, keyspace)
    there.execute(f"CREATE TABLE {name} {columns}")

    def insert(numbers: range) -> None:
        for number in numbers:
            scylla.session.execute(
                f"INSERT INTO {name} (p, c, v) VALUES ({number % 9}, {number}, {number})"
            )

    insert(range(count))
    words = arguments(scylla, name, target, tmp_path, "--workers", "2", "--eager")
    slow = Fault.parse(f"delay,match=INSERT INTO,times={count},seconds=30")
    with running(words) as (process, began):
        assert began.startswith(f"replicating {name} at ")
        while there.execute(f"SELECT count(*) FROM {name}").one()[0] < count:
            assert process.poll() is None
        target.faults.add(slow)
        insert(range(count, 2 * count))
        while not target.faults.struck(slow):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0
        assert process.stderr is not None
        first = applied(process.stderr.read())
    target.faults.clear()
    assert first == count
    outcome = invoke(*words, *TO_NOW)
    assert outcome.exit_code == 0, outcome.output
    assert applied(outcome.stderr) == count
    facts = "p, c, writetime(v)"
    assert contents(there, name, facts) == contents(scylla.session, name, facts)
    there.execute(f"DROP KEYSPACE {keyspace}")


def test_lost_changes_end_it_unless_it_is_told_to_continue(
    scylla: Scylla, copy: str, there: Session, target: EmbeddedScylla, tmp_path: Path
) -> None:
    """A run whose position is older than the log's TTL fails, because the copy would be wrong.

    The error names the option with which a run continues. The exit status is 2, because a restart
    fails in the same way.
    """
    words = [*arguments(scylla, copy, target, tmp_path), *TO_NOW]
    assert invoke(*words).exit_code == 0
    fall_behind(tmp_path / "position", f"replicate {copy} to {copy}", copy)
    scylla.session.execute(WRITES[0].format(t=copy))
    for _ in range(2):
        failed = invoke(*words)
        assert failed.exit_code == 2
        assert re.fullmatch(
            rf"Error: rows of {copy} written in .* expired before they were read; expected a "
            r"reader that reads them in time: start over, or set --data-loss to 'continue'",
            failed.stderr.splitlines()[-1],
        )
        assert contents(there, copy)[0] == []
    continued = invoke(*words, "--data-loss", "continue")
    assert (continued.exit_code, applied(continued.stderr)) == (0, 1)
    assert contents(there, copy) == contents(scylla.session, copy)
    assert invoke(*words).exit_code == 0


def fall_behind(file: Path, application: str, table: str) -> None:
    """Set the stored position back by two days, which is longer than the log's TTL of a day."""
    name = CheckpointName(application, TableName.parse(table))
    store = SqliteCheckpoints(file)
    kept = store.load(name)
    assert kept is not None
    store.save(name, evolve(kept, position=kept.position - 2 * 86_400 * SECOND))
    store.close()


def test_a_missing_target_is_reported_with_a_remedy(
    scylla: Scylla, table: str, there: Session, target: EmbeddedScylla, tmp_path: Path
) -> None:
    """The error for a missing target contains the CQL that creates it."""
    scylla.session.execute(WRITES[0].format(t=table))
    words = arguments(scylla, table, target, tmp_path, *TO_NOW)
    outcome = invoke(*words)
    assert outcome.exit_code == 1
    [line] = outcome.stderr.splitlines()
    assert line.startswith(f"Error: at the target, table {table} was not found at ")
    for statement in line.partition("create it: ")[2].split("; "):
        there.execute(statement)
    assert invoke(*words).exit_code == 0
    assert contents(there, table) == contents(scylla.session, table)


def test_a_missing_keyspace_is_created_first(
    scylla: Scylla, table: str, there: Session, target: EmbeddedScylla, tmp_path: Path
) -> None:
    """The statements in the error create keyspace, type and table, in this order."""
    scylla.session.execute(WRITES[0].format(t=table))
    words = arguments(scylla, table, target, tmp_path, *TO_NOW)
    [line] = invoke(*words, "Elsewhere.t").stderr.splitlines()
    assert line.startswith("Error: at the target, keyspace Elsewhere of table Elsewhere.t was not")
    for statement in line.partition("create it: ")[2].split("; "):
        there.execute(statement)
    assert invoke(*words, "Elsewhere.t").exit_code == 0
    assert contents(there, '"Elsewhere".t') == contents(scylla.session, table)


def test_existing_types_are_kept(
    scylla: Scylla, table: str, there: Session, target: EmbeddedScylla, tmp_path: Path
) -> None:
    """The CREATE statement in the error omits existing types, so it can be executed as it is."""
    keyspace, _, _ = table.partition(".")
    there.execute(f"CREATE TYPE {keyspace}.pair (a int, b text)")
    words = arguments(scylla, table, target, tmp_path, *TO_NOW)
    [line] = invoke(*words).stderr.splitlines()
    assert "CREATE TYPE" not in line
    there.execute(line.partition("create it: ")[2])
    assert invoke(*words).exit_code == 0
    there.execute(f"CREATE TABLE {table}2 {COLUMNS.replace('v text', 'v int')}")
    [line] = invoke(*words, f"{table}2").stderr.splitlines()
    assert "CREATE TYPE" not in line
    assert "; alter it, or create it anew: CREATE TABLE " in line


@pytest.mark.parametrize("has_table", [False, True])
def test_an_existing_type_that_differs_is_refused(
    scylla: Scylla,
    table: str,
    there: Session,
    target: EmbeddedScylla,
    tmp_path: Path,
    has_table: bool,
) -> None:
    """The one-line error shows both definitions of the type."""
    keyspace, _, _ = table.partition(".")
    there.execute(f"CREATE TYPE {keyspace}.pair (a int, b int)")
    if has_table:
        there.execute(f"CREATE TABLE {table} {COLUMNS}")
    outcome = invoke(*arguments(scylla, table, target, tmp_path))
    assert outcome.exit_code == 1
    [line] = outcome.stderr.splitlines()
    assert line == (
        f'Error: type {keyspace}.pair is ("a" int, "b" int), and {table} needs ("a" int, "b" '
        "text): alter the type, or create the copy in another keyspace"
    )


def test_a_table_is_not_copied_onto_itself(scylla: Scylla, table: str, tmp_path: Path) -> None:
    """A table is not copied onto itself: each applied change would be logged and applied again."""
    host = scylla.contact_point
    store = str(tmp_path / "progress.db")
    outcome = invoke("replicate", host, table, host, "--checkpoint", store, *TO_NOW)
    assert outcome.exit_code == 1
    [line] = outcome.stderr.splitlines()
    assert f"table {table} at the target is the source table itself" in line


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (COLUMNS.replace("l list<text>, ", ""), 'it lacks column "l" list<text>; alter it'),
        (COLUMNS.replace("v text", "v int"), 'column "v" is of type int, not text; alter it'),
        (COLUMNS.replace(" static", ""), 'column "st" is regular, not static; alter it'),
        (
            COLUMNS.replace("(p, c)", "(c, p)").replace("(c D", "(p D"),
            'column "p" is clustering column 1, not partition key column 1, column "c" is ',
        ),
        (COLUMNS.replace("p int,", "p int, d int,").replace("(p, c)", "((p, d), c)"), "key has "),
        (f"{COLUMNS} AND cdc = {{'enabled': true}}", "has CDC turned on, so it rejects writes "),
    ],
)
def test_a_target_that_cannot_be_a_copy_is_refused(
    scylla: Scylla,
    table: str,
    there: Session,
    target: EmbeddedScylla,
    tmp_path: Path,
    columns: str,
    message: str,
) -> None:
    """The one-line error names each difference between the tables."""
    there.execute(f"CREATE TYPE {table.partition('.')[0]}.pair (a int, b text)")
    there.execute(f"CREATE TABLE {table}2 {columns}")
    outcome = invoke(*arguments(scylla, table, target, tmp_path), f"{table}2")
    assert outcome.exit_code == 1
    [line] = outcome.stderr.splitlines()
    assert message in line


def test_a_log_that_cannot_be_copied_is_refused(
    scylla: Scylla, keyspace: str, target: EmbeddedScylla, tmp_path: Path
) -> None:
    """A log with `delta=keys` is rejected, because it has no values to copy."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.k (p int PRIMARY KEY) "
        "WITH cdc = {'enabled': true, 'delta': 'keys'}"
    )
    outcome = invoke(*arguments(scylla, f"{keyspace}.k", target, tmp_path))
    assert outcome.exit_code == 1
    assert outcome.stderr.startswith(f"Error: {keyspace}.k: its log has keys only, not ")


@pytest.mark.slow
def test_a_refused_write_ends_it_in_one_line(
    scylla: Scylla, copy: str, there: Session, target: EmbeddedScylla, tmp_path: Path
) -> None:
    """After a refused write the exit status is 1, and the next run applies the change."""
    words = arguments(scylla, copy, target, tmp_path, "--eager")
    with running(words) as (process, began):
        assert began.startswith("replicating ")
        there.execute(f"ALTER TABLE {copy} DROP v")
        scylla.session.execute(WRITES[-1].format(t=copy))
        assert process.wait(timeout=120) == 1
        assert process.stderr is not None
        *_, stopped, line = process.stderr.read().splitlines()
    assert stopped.startswith("stopped: 0 changes applied")
    assert line.startswith(f"Error: {copy} at {target.contact_point}: ")
    assert line.endswith("; start again to continue")
    there.execute(f"ALTER TABLE {copy} ADD v text")
    assert invoke(*words, *TO_NOW).exit_code == 0
    assert contents(there, copy) == contents(scylla.session, copy)


@pytest.mark.parametrize(("expiry", "left"), [("written", 40), ("applied", 100)])
def test_the_option_expiry_decides_when_cells_expire(
    keyspace: str, there: Session, target: EmbeddedScylla, tmp_path: Path, expiry: str, left: int
) -> None:
    """`--expiry` determines the TTL of a cell that is applied late.

    After an hour's delay, a TTL of 100 minutes becomes 40 minutes or stays at 100 minutes.
    """
    clock = ManualClock(time.time_ns() // 1_000 - 3_600 * SECOND)
    with EmbeddedScylla(clock=clock) as source:
        for server in (source, target):
            server.execute(
                f"CREATE KEYSPACE {keyspace} WITH replication = "
                "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
                "AND tablets = {'enabled': false}"
            )
        table = f"{keyspace}.t"
        source.execute(
            f"CREATE TABLE {table} (p int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}"
        )
        target.execute(f"CREATE TABLE {table} (p int PRIMARY KEY, v int)")
        source.execute(f"INSERT INTO {table} (p, v) VALUES (1, 1) USING TTL 6000")
        clock.advance(3_600 * SECOND)
        words = ["replicate", source.contact_point, table, target.contact_point, *TO_NOW]
        file = ("--checkpoint", str(tmp_path / "position"))
        assert invoke(*words, *file, "--expiry", expiry).exit_code == 0
    ttl = there.execute(f"SELECT ttl(v) FROM {table}").one()[0]
    assert ttl / 60 == pytest.approx(left, abs=2)
    there.execute(f"DROP KEYSPACE {keyspace}")


def test_progress_is_printed_at_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    """The count of changes is printed on catching up, and every ten seconds if it has changed."""
    clock = ManualClock(100 * SECOND)
    report = Report(clock, caught_up=5 * SECOND)
    table = TableName("ks", "t")
    for _ in range(1_234):
        report.count()
    assert capsys.readouterr().err == ""
    clock.advance(10 * SECOND)
    report.count()
    assert capsys.readouterr().err == "1,235 changes applied\n"
    clock.advance(10 * SECOND)
    report.reached(WindowHandled(table, Window(0, 60 * SECOND)))
    assert capsys.readouterr().err == ""
    report.reached(WindowHandled(table, Window(60 * SECOND, 116 * SECOND)))
    report.count()
    caught_up = "caught up: 1,235 changes applied, all before 1970-01-01T00:01:56Z\n"
    assert capsys.readouterr().err == caught_up
    clock.advance(10 * SECOND)
    for end in (117, 118):
        report.reached(WindowHandled(table, Window(0, end * SECOND)))
    later = "1,236 changes applied, all before 1970-01-01T00:01:57Z\n"
    assert capsys.readouterr().err == later


def test_each_side_has_its_login(scylla: Scylla, table: str, tmp_path: Path) -> None:
    """The source and the target each have login options and environment variables."""
    with EmbeddedScylla(credentials=("me", "secret")) as target:
        words = arguments(scylla, table, target, tmp_path)
        unknown = invoke(*words)
        assert unknown.exit_code == 1
        assert "expected the username and password" in unknown.stderr
        login = {"SCYLLA_CDC_TARGET_PASSWORD": "secret"}
        known = invoke(*words, "--target-username", "me", **login)
    assert f"at the target, keyspace {table.partition('.')[0]} of table" in known.stderr
    unasked = invoke(*words, "--target-username", "me")
    assert unasked.exit_code == 2
    assert unasked.stderr == (
        "Error: --target-username is 'me': give its password in --target-password-file or "
        "$SCYLLA_CDC_TARGET_PASSWORD\n"
    )


DIGITS = "1" + "0" * 5_000


def test_numbers_of_any_length(
    scylla: Scylla, keyspace: str, there: Session, target: EmbeddedScylla, tmp_path: Path
) -> None:
    """`replicate`, `compare` and `tail` take numbers that Python does not convert by default."""
    table, number = f"{keyspace}.t", 10**5_000
    raw = number.to_bytes(number.bit_length() // 8 + 1, "big").hex()
    varint, decimal = f"blobAsVarint(0x{raw})", f"blobAsDecimal(0x00000000{raw})"
    create_keyspace(there, keyspace)
    columns = (
        "(k decimal, c varint, d decimal, m map<decimal, varint>, l list<decimal>, f frozen<pair>, "
        "t frozen<tuple<int, decimal>>, PRIMARY KEY (k, c))"
    )
    for session, cdc in ((scylla.session, " WITH cdc = {'enabled': true}"), (there, "")):
        session.execute(f"CREATE TYPE {keyspace}.pair (a varint, b decimal)")
        session.execute(f"CREATE TABLE {table} {columns}{cdc}")
    scylla.session.execute(
        f"INSERT INTO {table} (k, c, d, m, l, f, t) VALUES ({decimal}, {varint}, {decimal}, "
        f"{{{decimal}: {varint}}}, [{decimal}], {{a: {varint}, b: {decimal}}}, (1, {decimal}))"
    )
    comparison = "compare", scylla.contact_point, table, target.contact_point
    different = invoke(*comparison)
    assert f'only in the source  k="{DIGITS}", c="{DIGITS}"' in different.stdout
    copied = invoke(*arguments(scylla, table, target, tmp_path, *TO_NOW))
    assert copied.exit_code == 0, copied.output[-500:]
    assert "no row differs" in invoke(*comparison).stdout
    tail = "tail", "--hosts", scylla.contact_point, table, "--from", "-1h", *TO_NOW
    assert f'd = "{DIGITS}"' in invoke(*tail).stdout
    [line] = invoke(*tail, "--json").stdout.splitlines()
    assert json.loads(line)["key"] == {"k": DIGITS, "c": DIGITS}
    there.execute(f"DROP KEYSPACE {keyspace}")
