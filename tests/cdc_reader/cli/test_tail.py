"""`scylla-cdc tail` on the server under test."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from cdc_reader.cli.change_text import change_text
from cdc_reader.cli.command import main
from tests.cdc_reader.changes.test_change import change_of
from tests.cdc_reader.cli.test_replicate import fall_behind

if TYPE_CHECKING:
    from click.testing import Result

    from cdc_reader.testing import Scylla

COMMAND = (sys.executable, "-c", "from cdc_reader.cli import main; main()", "tail")
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
SETTLED = ("--from", "earliest", "--until", "now", "--confidence-window", "0s")
"""Options that end a run at the current time.

No row is late, because the only writer awaits each response.
"""


@pytest.fixture
def table(scylla: Scylla, keyspace: str) -> str:
    """An empty table whose log has preimages and postimages."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (p int, c int, v text, l list<text>, st int static, "
        "PRIMARY KEY (p, c)) WITH cdc = {'enabled': true, 'preimage': true, 'postimage': true}"
    )
    return f"{keyspace}.t"


@pytest.fixture
def write(scylla: Scylla, table: str) -> Callable[..., None]:
    """A function that executes statements. In each statement, ``<t>`` stands for the table."""

    def write(*statements: str) -> None:
        for statement in statements:
            scylla.session.execute(statement.replace("<t>", table))

    return write


def insert(number: int) -> str:
    """Return a statement that inserts a row into partition 1."""
    return f"INSERT INTO <t> (p, c, v) VALUES (1, {number}, 'v{number}')"


def invoke(scylla: Scylla, *arguments: str) -> Result:
    """Run the command, and return its result when it ends."""
    return CliRunner().invoke(main, ["tail", "--hosts", scylla.contact_point, *arguments])


def numbers(outcome: Result | str) -> list[int]:
    """Return the clustering column of each change in JSON output."""
    text = outcome if isinstance(outcome, str) else outcome.stdout
    return [json.loads(line)["key"]["c"] for line in text.splitlines()]


@contextmanager
def tailing(scylla: Scylla, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process that follows the table, within the `with` block."""
    process = subprocess.Popen(
        [*COMMAND, "--hosts", scylla.contact_point, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stdout is not None
    try:
        assert process.stderr.readline().startswith("following ")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_text_shows_changes_and_images(
    scylla: Scylla, table: str, write: Callable[..., None]
) -> None:
    """Each change and each image is one line, and list elements are shown without their ids."""
    write(
        "INSERT INTO <t> (p, c, v, l) VALUES (1, 2, 'a\x1b[31m', ['x'])",
        "UPDATE <t> USING TTL 60 SET l = l + ['y'] WHERE p = 1 AND c = 2",
        "UPDATE <t> SET st = 5 WHERE p = 1",
        "DELETE v FROM <t> WHERE p = 1 AND c = 2",
        "DELETE FROM <t> WHERE p = 1 AND c > 0 AND c <= 5",
        "DELETE FROM <t> WHERE p = 1 AND c < 9",
        "DELETE FROM <t> WHERE p = 1",
    )
    outcome = invoke(scylla, table, *SETTLED)
    assert outcome.exit_code == 0, outcome.output
    assert re.sub(TIME, "<time>", outcome.stdout).splitlines() == [
        r'<time>  insert  p=1, c=2  l = ["x"], v = "a\u001b[31m"',
        r'    after   l=["x"], v="a\u001b[31m"',
        '<time>  update  p=1, c=2  l + ["y"]  for 60 s',
        '    before  l=["x"]',
        r'    after   l=["x", "y"], v="a\u001b[31m"',
        "<time>  update  p=1  st = 5  (static row)",
        "    after   st=5",
        "<time>  update  p=1, c=2  v = null",
        r'    before  v="a\u001b[31m"',
        '    after   l=["x", "y"], v=null',
        "<time>  range delete  p=1  from c=0 exclusive to c=5 inclusive",
        "<time>  range delete  p=1  from open to c=9 exclusive",
        "<time>  partition delete  p=1",
    ]


def test_a_log_of_keys_only_says_so(scylla: Scylla, keyspace: str) -> None:
    """With a keys-only log, a note says why no values are shown."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.k (p int PRIMARY KEY, v int) "
        "WITH cdc = {'enabled': true, 'delta': 'keys'}"
    )
    scylla.session.execute(f"INSERT INTO {keyspace}.k (p, v) VALUES (1, 1)")
    outcome = invoke(scylla, f"{keyspace}.k", *SETTLED)
    assert outcome.stdout.endswith("insert  p=1  (the log has keys only)\n")


def test_json_output_is_one_object_a_line(
    scylla: Scylla, table: str, write: Callable[..., None]
) -> None:
    """Each line of JSON shows `Change.to_dict()`, and `--limit` limits the number of lines."""
    write(*map(insert, range(5)))
    outcome = invoke(scylla, table, *SETTLED, "--json", "--limit", "3")
    assert outcome.exit_code == 0
    found = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert [change["key"] for change in found] == [{"p": 1, "c": number} for number in range(3)]
    assert found[0]["deltas"] == {"v": {"set": "v0"}}
    assert {change["table"] for change in found} == {table}


def test_lines_name_their_table_if_there_are_several(
    scylla: Scylla, keyspace: str, table: str, write: Callable[..., None]
) -> None:
    """With several tables, each line begins with the name of its table."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.other (p int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
    )
    write(insert(1), f"INSERT INTO {keyspace}.other (p) VALUES (9)")
    outcome = invoke(scylla, table, f"{keyspace}.other", *SETTLED)
    assert f"insert  {table}  p=1, c=1" in outcome.stdout
    assert f"insert  {keyspace}.other  p=9" in outcome.stdout
    assert len(outcome.stderr.splitlines()) == 2


def test_a_pattern_prints_the_tables_of_a_keyspace_in_order(
    scylla: Scylla, keyspace: str, table: str, write: Callable[..., None], tmp_path: Path
) -> None:
    """The tables are merged, and one that cannot be read is left out. Each has its position."""
    execute = scylla.session.execute
    execute(
        f"CREATE TABLE {keyspace}.u (p int, c int, PRIMARY KEY (p, c)) "
        "WITH cdc = {'enabled': true}"
    )
    execute(f'CREATE TABLE {keyspace}.bad (p int PRIMARY KEY, "cdc$time" int)')
    execute(f'CREATE TABLE {keyspace}.bad_scylla_cdc_log ("cdc$stream_id" blob PRIMARY KEY)')
    for number in range(12):
        write(
            insert(number)
            if number % 3
            else f"INSERT INTO {keyspace}.u (p, c) VALUES (1, {number})"
        )
    options = (*SETTLED, "--checkpoint", str(tmp_path / "positions.db"), "--json")
    outcome = invoke(scylla, f"{keyspace}.*", *options)
    assert numbers(outcome) == list(range(12))
    assert outcome.exit_code == 0
    write(insert(12))
    assert numbers(invoke(scylla, table, *options)) == [12]
    text = invoke(scylla, f"{keyspace}.t*", *SETTLED, "--limit", "1")
    assert f"insert  {table}  p=1, c=1" in text.stdout
    start = "from the earliest change in the log, or from its checkpoint, each table"
    assert text.stderr.startswith(f"following {keyspace}.t* {start}")


def test_a_pattern_prints_later_tables(scylla: Scylla, keyspace: str) -> None:
    """A table that is created while the command runs is followed, though there was none before."""
    with tailing(scylla, f"{keyspace}.*", "--eager", "--json") as process:
        assert process.stdout is not None
        scylla.session.execute(
            f"CREATE TABLE {keyspace}.t (p int, c int, PRIMARY KEY (p, c)) "
            "WITH cdc = {'enabled': true}"
        )
        scylla.session.execute(f"INSERT INTO {keyspace}.t (p, c) VALUES (1, 7)")
        assert numbers(process.stdout.readline()) == [7]


def test_from_and_until_bound_the_changes(
    scylla: Scylla, table: str, write: Callable[..., None]
) -> None:
    """`--from` is inclusive and `--until` is exclusive."""
    write(*map(insert, range(20)))
    whole = invoke(scylla, table, *SETTLED, "--json")
    times = [json.loads(line)["written_at"] for line in whole.stdout.splitlines()]
    span = ("--from", times[5], "--until", times[9], "--confidence-window", "0s", "--json")
    assert numbers(invoke(scylla, table, *span)) == [5, 6, 7, 8]
    assert invoke(scylla, table, "--from", "-2h", "--until", "-1h").stdout == ""


def test_shards_together_print_all_changes(
    scylla: Scylla, table: str, write: Callable[..., None]
) -> None:
    """All shards together print each change once."""
    write(*(insert(number).replace("(1,", f"({number},") for number in range(20)))
    parts = [
        numbers(invoke(scylla, table, *SETTLED, "--json", "--shard", f"{part}/3"))
        for part in (1, 2, 3)
    ]
    assert sorted(number for part in parts for number in part) == list(range(20))
    assert all(len(part) < 20 for part in parts)


def test_text_marks_late_and_incomplete_changes() -> None:
    """Notes about late and incomplete changes follow the values."""
    row = {"op": 2, "ck": 2, "a": 3}
    shown = change_text(change_of(row, late=True, complete=False), names_table=True).plain
    assert shown == (
        "2023-11-14T22:13:20.000000Z  insert  ks.t  pk=1, ck=2  a = 3  (late)  (incomplete)"
    )


def test_a_checkpoint_resumes_where_it_stopped(
    scylla: Scylla, table: str, write: Callable[..., None], tmp_path: Path
) -> None:
    """A run resumes even within a window. Another `--application` reads from the start."""
    write(*map(insert, range(5)))
    options = (*SETTLED, "--json", "--checkpoint", str(tmp_path / "positions"))
    first = invoke(scylla, table, *options, "--limit", "2")
    assert numbers(first) == [0, 1]
    second = invoke(scylla, table, *options)
    assert numbers(second) == [2, 3, 4]
    assert "where the last run stopped" in second.stderr
    write(insert(5))
    assert numbers(invoke(scylla, table, *options)) == [5]
    assert numbers(invoke(scylla, table, *options, "--application", "me")) == list(range(6))


def test_lost_changes_are_passed_over_unless_it_is_told_to_fail(
    scylla: Scylla, table: str, write: Callable[..., None], tmp_path: Path
) -> None:
    """After a loss, `tail` prints the remaining changes. With `--data-loss fail`, it fails."""
    write(insert(0))
    file = tmp_path / "positions"
    options = (*SETTLED, "--json", "--checkpoint", str(file))
    assert numbers(invoke(scylla, table, *options)) == [0]
    fall_behind(file, "tail", table)
    write(insert(1))
    failed = invoke(scylla, table, *options, "--data-loss", "fail")
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert failed.stderr.endswith("start over, or set --data-loss to 'continue'\n")
    assert 1 in numbers(invoke(scylla, table, *options))


def test_a_checkpoint_table_works_like_a_file(
    scylla: Scylla, keyspace: str, table: str, write: Callable[..., None]
) -> None:
    """Positions can be stored in a table, which `scylla-cdc status` reads too."""
    write(*map(insert, range(4)))
    kept = ("--checkpoint-table", f"{keyspace}.positions")
    hosts = ("--hosts", scylla.contact_point)
    missing = CliRunner().invoke(main, ["status", *hosts, table, *kept])
    assert "no position of this table" in missing.stdout
    assert numbers(invoke(scylla, table, *SETTLED, "--json", *kept, "--limit", "3")) == [0, 1, 2]
    assert numbers(invoke(scylla, table, *SETTLED, "--json", *kept)) == [3]
    shown = CliRunner().invoke(main, ["status", *hosts, table, *kept, "--json"])
    [application] = json.loads(shown.stdout)["applications"]
    assert (application["application"], application["shard"]) == ("tail", "1/1")
    both = invoke(scylla, table, *kept, "--checkpoint", "file")
    assert (both.exit_code, both.stderr) == (
        2,
        "Error: --checkpoint and --checkpoint-table exclude each other: give one of them\n",
    )


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGINT]
)
def test_it_follows_until_a_signal_ends_it(
    scylla: Scylla, table: str, write: Callable[..., None], number: signal.Signals
) -> None:
    """With `--eager`, new writes appear at once. After a signal the exit status is 0."""
    with tailing(scylla, table, "--eager", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        write(insert(7))
        assert numbers(process.stdout.readline()) == [7]
        process.send_signal(number)
        assert process.wait(timeout=120) == 0
        assert process.stdout.read() == ""
        assert process.stderr.read() == ""


def test_a_closed_pipe_is_no_error(scylla: Scylla, table: str, write: Callable[..., None]) -> None:
    """If its pipe is closed, the command ends at the next change, silently and with status 0."""
    with tailing(scylla, table, "--eager") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        write(insert(1))
        process.stdout.readline()
        process.stdout.close()
        write(insert(2))
        assert process.wait(timeout=120) == 0
        assert process.stderr.read() == ""


@pytest.mark.slow
def test_a_failed_write_is_reported_in_one_line(
    scylla: Scylla, table: str, write: Callable[..., None]
) -> None:
    """If writing to stdout fails, for example because the disk is full, the exit status is 1."""
    write(insert(1))
    words = [*COMMAND, "--hosts", scylla.contact_point, table, *SETTLED]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    [_, line] = ended.stderr.splitlines()
    assert line == "Error: cannot write changes to stdout: No space left on device"


@pytest.mark.slow
def test_colours_are_for_terminals(scylla: Scylla, table: str, write: Callable[..., None]) -> None:
    """On a terminal an insert is green, and long lines are not truncated."""
    write(f"INSERT INTO <t> (p, c, v) VALUES (1, 1, '{'long ' * 50}')")
    ours, theirs = os.openpty()
    words = [*COMMAND, "--hosts", scylla.contact_point, table, *SETTLED]
    colours = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    subprocess.run(words, stdout=theirs, check=True, env={**colours, "TERM": "xterm-256color"})
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "\x1b[32minsert\x1b[0m" in shown
    assert "long " * 50 in shown


def test_a_closed_pipe_is_noticed_without_changes(scylla: Scylla, table: str) -> None:
    """Without changes, a closed pipe ends the command at the end of a window."""
    options = ("--from", "-1m", "--confidence-window", "0s")
    with tailing(scylla, table, *options) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=120) == 0


def test_the_help_says_which_changes_are_in_order() -> None:
    """The help explains the order of changes with and without `--eager`."""
    text = " ".join(CliRunner().invoke(main, ["tail", "--help"]).stdout.split())
    assert "printed in order of write time, with several tables merged" in text
    assert "same microsecond are printed table by table and stream by stream" in text
    assert "as soon as they are found, stream by stream, in no overall order" in text


def test_waiting_is_explained_on_stderr(scylla: Scylla, table: str) -> None:
    """A message on stderr shows the table, the start and the delay."""
    outcome = invoke(scylla, table, *SETTLED)
    assert outcome.stderr == (
        f"following {table} from the earliest change in the log; changes are shown in order, 0 s "
        "after they are written (--eager shows them at once); waiting for changes\n"
    )
    eager = invoke(scylla, table, *SETTLED, "--eager", "--shard", "2/3")
    assert ", part 2/3 from" in eager.stderr
    assert "changes are shown at once" in eager.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["{ks}.missing"], 1, "table {ks}.missing was not found"),
        (["nonsense"], 2, "table is 'nonsense': give it as keyspace.table"),
        (["*.t"], 2, "tables is '*.t': name one keyspace"),
        (["{ks}.t", "--from", "yesterday"], 2, "--from is 'yesterday': give 'earliest', 'now', "),
        (["{ks}.t", "--from", "-10"], 2, "--from is '-10': give 'earliest', 'now', a time ago"),
        (["{ks}.t", "--until", "earliest"], 2, "--until is 'earliest': give 'now', a time ago"),
        (["{ks}.t", "--until", "-10m"], 2, "give an earlier start or a later end"),
        (["{ks}.t", "--until", "0"], 2, "--until is '0': not a likely time of a change in mill"),
        (["{ks}.t", "--confidence-window", "30"], 2, "--confidence-window is '30': give a "),
        (["{ks}.t", "--shard", "3/2"], 2, "shard is '3/2': give it as '1/4' to '4/4'"),
        (["{ks}.t", "--checkpoint", __file__], 1, "file is not a database"),
    ],
)
@pytest.mark.usefixtures("table")
def test_impossible_requests_are_refused_in_one_line(
    scylla: Scylla, keyspace: str, arguments: list[str], status: int, message: str
) -> None:
    """The exit status is 2 for usage errors, and 1 for errors of the cluster or the store."""
    outcome = invoke(scylla, *(argument.format(ks=keyspace) for argument in arguments))
    assert outcome.exit_code == status
    [line] = outcome.stderr.splitlines()
    assert line.startswith("Error: ")
    assert message.format(ks=keyspace) in line


def test_a_snapshot_comes_first(
    scylla: Scylla, table: str, write: Callable[..., None], tmp_path: Path
) -> None:
    """Existing rows are printed first. A second run from the checkpoint prints only new changes."""
    write(insert(1), insert(2), "UPDATE <t> SET st = 5 WHERE p = 1")
    scylla.session.execute(f"TRUNCATE {table}_scylla_cdc_log")
    again = ("--checkpoint", str(tmp_path / "tail.db"), "--snapshot", "initial", *SETTLED[2:])
    outcome = invoke(scylla, table, "--json", *again)
    assert outcome.exit_code == 0, outcome.output
    found = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert {change["operation"] for change in found} == {"snapshot"}
    assert sorted(change["after"].get("v") or "" for change in found) == ["", "v1", "v2"]
    assert f"following {table} from now, after the rows it has" in outcome.stderr
    assert f"{table}: snapshot: 2 rows, 100%\n" in outcome.stderr
    write(insert(3))
    [change] = invoke(scylla, table, "--json", *again).stdout.splitlines()
    assert (json.loads(change)["operation"], json.loads(change)["key"]["c"]) == ("insert", 3)


def test_a_snapshot_begins_now(scylla: Scylla, table: str) -> None:
    """`--snapshot` and `--from` cannot be combined."""
    outcome = invoke(scylla, table, "--snapshot", "initial", "--from", "-10m")
    assert outcome.exit_code == 2
    assert "leave out --from" in outcome.stderr
