"""`scylla-cdc mirror`: copies in Delta tables, from a real socket to real files."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from attrs import evolve, frozen
from click.testing import CliRunner
from deltalake import DeltaTable

from cdc_reader.cli.command import main
from cdc_reader.copies import keeping, table_copy
from cdc_reader.copies.delta import DeltaFiles
from cdc_reader.copies.position_file import PositionFile
from cdc_reader.copies.properties import BUCKET, STATE
from cdc_reader.copies.table_copy import TableCopy, opened
from cdc_reader.cql.names import TableName
from tests.examples.test_copies import ROUND, Orders, by_key

if TYPE_CHECKING:
    from click.testing import Result

    from cdc_reader.testing import Scylla

CDC = "WITH cdc = {'enabled': true, 'postimage': true}"
TO_NOW = ("--until", "now", "--confidence-window", "0s")
"""Options that end a run at the current time. No write is in progress, so all have settled."""
ROOT = Path(__file__).parents[3]
Execute = Callable[..., None]


class Crash(BaseException):
    """Ends a run, as the end of its process would: nothing catches it."""


@frozen
class Copy:
    """A table, and the folder of its copy."""

    scylla: Scylla
    table: str
    folder: Path

    def run(self, *more: str) -> Result:
        """Bring the copy up to the present."""
        words = ["mirror", self.scylla.contact_point, self.table, str(self.folder), *TO_NOW]
        return CliRunner().invoke(main, [*words, *more])

    def current(self) -> list[dict[str, Any]]:
        """Bring the copy up to the present, and return its rows."""
        found = self.run()
        assert found.exit_code == 0, found.output
        return self.rows()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the copy, with the table's columns."""
        table = DeltaTable(self.folder)
        marker = table.metadata().configuration[STATE]
        rows: list[dict[str, Any]] = pa.table(table.to_pyarrow_table()).drop([marker]).to_pylist()
        return rows

    def differences(self, *more: str) -> tuple[int, str]:
        """Return what ``scylla-cdc compare`` says."""
        words = ["compare", self.scylla.contact_point, self.table, str(self.folder)]
        found = CliRunner().invoke(main, [*words, "--confidence-window", "0s", *more])
        return found.exit_code, found.output

    @property
    def file(self) -> Path:
        """The checkpoint."""
        return PositionFile.beside(self.folder).path

    def error(self, status: int = 1) -> str:
        """Run the command, which fails with one line, and return the line."""
        found = self.run()
        assert found.exit_code == status, found.output
        *_, line = found.stderr.splitlines()
        assert found.stderr.count("Error: ") == 1
        return line


@pytest.fixture
def copy(scylla: Scylla, keyspace: str, tmp_path: Path) -> Copy:
    """A copy that does not exist yet."""
    return Copy(scylla, f"{keyspace}.t", tmp_path / "copy")


@pytest.fixture
def execute(scylla: Scylla, copy: Copy) -> Execute:
    """Execute statements; ``{t}`` stands for the table."""

    def execute(*statements: str) -> None:
        for statement in statements:
            name, keyspace = copy.table, copy.table.partition(".")[0]
            scylla.session.execute(statement.replace("{t}", name).replace("{ks}", keyspace))

    return execute


@pytest.fixture
def small(execute: Execute) -> None:
    """A table with two rows."""
    execute(
        f"CREATE TABLE {{t}} (p int PRIMARY KEY, v int) {CDC}",
        "INSERT INTO {t} (p, v) VALUES (1, 1)",
        "INSERT INTO {t} (p, v) VALUES (2, 2)",
    )


@pytest.fixture
def orders(copy: Copy) -> Orders:
    """A table with static columns, collections and rows, which random statements change."""
    return random_orders(copy, random.SystemRandom().randrange(1 << 32))


def random_orders(copy: Copy, seed: int) -> Orders:
    """Return a table with rows, all of which an INSERT created, as those of a snapshot."""
    print(f"seed {seed}")
    orders, execute = Orders(copy.scylla, copy.table, seed), copy.scylla.session.execute
    orders.change(60)
    for row in orders.rows():
        if row["number"] is not None:  # otherwise, a partition with a static column alone
            key = f"{row['customer']}, {row['year']}, {row['number']}"
            execute(f"INSERT INTO {copy.table} (customer, year, number) VALUES ({key})")
    return orders


def crashing(monkeypatch: pytest.MonkeyPatch, where: type, name: str, moment: str) -> None:
    """Let the first call of a method crash, before or after it has its effect."""
    method = getattr(where, name)

    def call(*arguments: Any) -> Any:
        if moment == "after":
            method(*arguments)
        raise Crash

    monkeypatch.setattr(where, name, call)


def test_the_copy_equals_the_table(copy: Copy, orders: Orders) -> None:
    """The copy equals the table after the snapshot, and after each further run."""
    for _ in range(3):
        assert by_key(copy.current()) == orders.rows()
        assert copy.differences()[0] == 0, copy.differences()
        orders.change(ROUND)
    assert len(orders.rows()) > 10
    assert DeltaTable(copy.folder).metadata().configuration[BUCKET] == "none"


def test_changes_during_the_snapshot(
    copy: Copy, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log delivers changes that the rows of the snapshot include already, or only in part."""
    begin, insert = TableCopy.begin, TableCopy.insert

    def begun(*arguments: Any) -> None:
        begin(*arguments)
        orders.change(ROUND)

    def inserted(*arguments: Any) -> None:
        orders.change(ROUND)
        insert(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(TableCopy, "begin", begun)
        patched.setattr(TableCopy, "insert", inserted)
        copy.current()
    rows = orders.rows()
    found = by_key(copy.current())
    # Rows of the snapshot count as inserted, also those that an UPDATE has made meanwhile: such a
    # row stays without its last value.
    keys = [key_of(row) for row in rows]
    assert [row for row in found if key_of(row) in keys or row["status"] or row["items"]] == rows


def key_of(row: dict[str, Any]) -> list[Any]:
    """Return the primary key of an order."""
    return [row[name] for name in ("customer", "year", "number")]


def test_a_run_tells_what_it_does(copy: Copy, execute: Execute, small: None) -> None:
    """The output names the table, the copy and the position, and counts rows and changes."""
    del small
    greeting, *_, last = copy.run().stderr.splitlines()
    source = f"{copy.table} at {copy.scylla.contact_point}"
    assert greeting == (
        f"copying {source} to {copy.folder} from now, after the rows it has; the position is kept "
        f"in {copy.file}"
    )
    assert last.startswith("stopped: 2 rows of the table read, 0 changes applied, all before ")
    execute("UPDATE {t} SET v = 3 WHERE p = 1")
    greeting, *_, last = copy.run().stderr.splitlines()
    assert ", where the last run stopped; the position" in greeting
    assert last.startswith("stopped: 1 changes applied, all before ")


@pytest.mark.parametrize(
    ("where", "name", "moment"),
    [
        (DeltaFiles, "create", "after"),
        (DeltaFiles, "append", "before"),
        (DeltaFiles, "append", "after"),
        (DeltaFiles, "merge", "before"),
        (DeltaFiles, "merge", "after"),
        *(
            pytest.param(where, name, moment, marks=pytest.mark.slow)
            for where, name, moment in (
                (PositionFile, "save", "before"),
                (PositionFile, "save", "after"),
                (DeltaFiles, "create", "before"),
                (DeltaFiles, "add_columns", "before"),
                (DeltaFiles, "add_columns", "after"),
            )
        ),
    ],
)
def test_a_crash_repeats_and_loses_nothing(
    copy: Copy,
    orders: Orders,
    monkeypatch: pytest.MonkeyPatch,
    where: type,
    name: str,
    moment: str,
) -> None:
    """Whether a step has happened or not before the crash, the next run continues there."""
    if name in ("merge", "add_columns"):
        copy.current()
        copy.scylla.session.execute(f"ALTER TABLE {copy.table} ADD note text")
        orders.change(ROUND)
    with monkeypatch.context() as patched:
        crashing(patched, where, name, moment)
        with pytest.raises(Crash):
            copy.run()
    orders.change(5)
    assert by_key(copy.current()) == orders.rows()


@pytest.mark.parametrize("calls", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_crash_at_a_save_of_the_position(
    copy: Copy, orders: Orders, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """The second save is before the first commit, and the third one after it."""
    save, left = PositionFile.save, calls

    def counted(*arguments: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Crash
        save(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(PositionFile, "save", counted)
        with pytest.raises(Crash):
            copy.run()
    orders.change(5)
    assert by_key(copy.current()) == orders.rows()


def test_crashes_in_the_middle_of_the_snapshot(
    copy: Copy, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges that were committed are not read again, and those that were not are."""
    monkeypatch.setattr(keeping, "BYTES", 0)
    append, calls = DeltaFiles.append, 0

    def counted(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise Crash
        append(*arguments)
        if calls % 5 == 0:
            raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(DeltaFiles, "append", counted)
        while True:
            with suppress(Crash):
                copy.current()
                break
            orders.change(3)
    assert calls > 3
    assert by_key(copy.current()) == orders.rows()


@pytest.mark.parametrize("limit", ["BYTES", pytest.param("SECONDS", marks=pytest.mark.slow)])
def test_a_crash_among_many_commits(
    copy: Copy, orders: Orders, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Parts of a window are committed without their position, and applied again after a crash."""
    monkeypatch.setattr(keeping, limit, 0)
    copy.current()
    commits, draw = 0, random.Random(7)
    merge = DeltaFiles.merge
    for _ in range(3):
        left = draw.randrange(1, 4)

        def counted(*arguments: Any) -> None:
            nonlocal commits, left
            merge(*arguments)
            commits, left = commits + 1, left - 1
            if not left:
                raise Crash

        orders.change(ROUND)
        with monkeypatch.context() as patched:
            patched.setattr(DeltaFiles, "merge", counted)
            with suppress(Crash):
                copy.run()
    assert by_key(copy.current()) == orders.rows()
    assert commits >= 3


def test_idle_time_moves_the_position(copy: Copy, small: None) -> None:
    """Without changes, nothing is committed, but the position does not grow old."""
    del small
    copy.current()
    version, position = DeltaTable(copy.folder).version(), copy.file.read_text()
    copy.current()
    assert DeltaTable(copy.folder).version() == version
    assert copy.file.read_text() != position


def test_a_signal_ends_the_run(copy: Copy, small: None) -> None:
    """SIGTERM ends a process that follows the table, with status 0 and everything committed."""
    del small
    words = ["mirror", copy.scylla.contact_point, copy.table, str(copy.folder)]
    code = "from cdc_reader.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *words, "--confidence-window", "0s"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert next(lines).startswith("copying ")
        while not copy.file.exists():  # the signal handler is there before the file
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        *_, last = lines
    assert process.returncode == 0
    assert last.startswith("stopped: ")
    assert sorted(row["p"] for row in copy.current()) == [1, 2]


def test_a_second_writer_is_refused(copy: Copy, small: None) -> None:
    """While one process keeps the copy, another one ends with one line."""
    del small
    copy.current()
    with opened(copy.folder, TableName.parse(copy.table)):
        assert copy.error() == (
            f"Error: another process keeps the copy of {copy.file} current: stop it, or give "
            "another folder"
        )
    assert len(copy.current()) == 2


@pytest.mark.parametrize(
    ("where", "name", "told"),
    [
        (DeltaFiles, "merge", "wrote to the copy in {folder} at the same time"),
        (TableCopy, "_current", "has written to the copy in {folder}"),
    ],
)
def test_a_writer_that_ignores_the_lock(
    copy: Copy,
    execute: Execute,
    small: None,
    monkeypatch: pytest.MonkeyPatch,
    where: type,
    name: str,
    told: str,
) -> None:
    """Such as one on another machine: the slower one ends with one line, and nothing is lost."""
    del small
    copy.current()
    execute("UPDATE {t} SET v = 3 WHERE p = 1")
    method = getattr(where, name)

    def overtaken(*arguments: Any) -> Any:
        with monkeypatch.context() as others:
            others.setattr(where, name, method)
            copy.current()
        execute("UPDATE {t} SET v = 4 WHERE p = 2")
        return method(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(PositionFile, "locked", lambda _: nullcontext())
        patched.setattr(where, name, overtaken)
        line = copy.error()
    remedy = ": stop it, then start again to continue"
    assert line == f"Error: another process {told.format(folder=copy.folder)}{remedy}"
    assert sorted(row["v"] for row in copy.current()) == [3, 4]


def _no_checkpoint(copy: Copy) -> None:
    copy.file.unlink()


def _no_copy(copy: Copy) -> None:
    shutil.rmtree(copy.folder)


def _older(copy: Copy) -> None:
    stored = json.loads(copy.file.read_text())
    [version] = stored["positions"]
    stored["positions"] = {str(int(version) - 1): stored["positions"][version]}
    copy.file.write_text(json.dumps(stored))


def _of_spark(copy: Copy) -> None:
    shutil.rmtree(copy.folder)
    DeltaTable.create(
        copy.folder,
        pa.schema([("p", pa.int32())]),
        configuration={STATE: "_state"},
        raise_if_key_not_exists=False,
    )


def _only_of_spark(copy: Copy) -> None:
    _of_spark(copy)
    copy.file.unlink()


def _checkpoint_of_spark(copy: Copy) -> None:
    copy.file.unlink()
    copy.file.mkdir()


def _of_another_copy(copy: Copy) -> None:
    stored = json.loads(copy.file.read_text())
    copy.file.write_text(json.dumps({**stored, "copy": "00"}))


def _of_another_table(copy: Copy) -> None:
    stored = json.loads(copy.file.read_text())
    copy.file.write_text(json.dumps({**stored, "table": "shop.orders"}))


def _of_a_later_version(copy: Copy) -> None:
    stored = json.loads(copy.file.read_text())
    copy.file.write_text(json.dumps({**stored, "format": 2}))


def _not_json(copy: Copy) -> None:
    copy.file.write_bytes(b"\xff\x00")


def _other_json(copy: Copy) -> None:
    copy.file.write_text('{"format": 1, "copy": 1, "table": "k.t", "positions": {}}')


def _long_ago(copy: Copy) -> None:
    stored = json.loads(copy.file.read_text())
    for each in stored["positions"].values():
        each["position"] -= 3 * 86_400_000_000
    copy.file.write_text(json.dumps(stored))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_no_checkpoint, "was written with another checkpoint than {file}: restore that checkp"),
        (_no_copy, "there is no copy in {folder}, but its checkpoint {file}: restore the copy, or"),
        (_older, "{file} has no position of the copy in {folder}: one of them was restored or"),
        (_of_spark, "{folder} is a Delta table that 'scylla-cdc mirror' has not made: give anoth"),
        (_only_of_spark, "{folder} is a Delta table that 'scylla-cdc mirror' has not made: give a"),
        (_checkpoint_of_spark, "{file} is not the checkpoint of a copy that 'scylla-cdc mirror'"),
        (_of_another_copy, "was written with another checkpoint than {file}: restore that check"),
        (_of_another_table, "{file} is of a copy of shop.orders, and not of {table}: give anothe"),
        (_of_a_later_version, "checkpoints in {file}: found version 2, expected 1; use the versio"),
        (_not_json, "{file} is not the checkpoint of a copy that 'scylla-cdc mirror' keeps: give"),
        (_other_json, "{file} is not the checkpoint of a copy that 'scylla-cdc mirror' keeps: gi"),
        (_long_ago, "; delete {folder} and {file} to start over"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    copy: Copy, small: None, damage: Callable[[Copy], None], told: str
) -> None:
    """One line says what to do, and nothing is written."""
    del small
    copy.current()
    damage(copy)
    before = [*_files(copy.folder)]
    line = copy.error(2 if damage is _long_ago else 1)
    assert told.format(file=copy.file, folder=copy.folder, table=copy.table) in line
    assert [*_files(copy.folder)] == before


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def test_a_folder_with_other_files_is_refused(copy: Copy, small: None) -> None:
    """A file in the place of the copy, and a folder with files, are left alone."""
    del small
    copy.folder.mkdir()
    (copy.folder / "notes.txt").write_text("mine")
    assert "expected a new or an empty folder" in copy.error(2)
    shutil.rmtree(copy.folder)
    copy.folder.write_text("mine")
    assert "cannot be read or written: " in copy.error()
    assert copy.folder.read_text() == "mine"


@pytest.mark.parametrize("folder", ["s3://bucket/copy", "/", "..", "a%20b", "a[b"])
def test_paths_that_cannot_have_a_copy(copy: Copy, small: None, folder: str) -> None:
    """Other paths than those of local folders that deltalake can write are refused."""
    del small
    words = ["mirror", copy.scylla.contact_point, copy.table]
    place = folder if "/" in folder or folder == ".." else str(copy.folder / folder)
    found = CliRunner().invoke(main, [*words, place, *TO_NOW])
    assert found.exit_code == 2, found.output
    assert "is " in found.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["näme 'x' \"y\"", "a?b#c", "{1}*~%"])
def test_odd_paths(copy: Copy, small: None, name: str) -> None:
    """The copy may be in a folder with any other name."""
    del small
    odd = evolve(copy, folder=copy.folder / name)
    assert len(odd.current()) == 2
    assert odd.differences()[0] == 0
    assert len(odd.current()) == 2


def test_without_deltalake(copy: Copy, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    del small
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert copy.error(2).endswith("install deltalake (pip install 'scylla-cdc[lake]')")


def test_odd_names_and_values(copy: Copy, execute: Execute) -> None:
    """Names and values may contain dots, quotes and SQL; keys may be NaN, lists and bytes."""
    execute(
        'CREATE TABLE {t} (p double, "a.b" frozen<list<text>>, "x y" blob, "_Inserted x" text, '
        '"select ""1""; --" text, st text static, PRIMARY KEY (p, "a.b", "x y")) ' + CDC
    )
    insert = copy.scylla.session.prepare(
        f'INSERT INTO {copy.table} (p, "a.b", "x y", "_Inserted x", st) VALUES (?, ?, ?, ?, ?)'
    )
    keys = [
        (p, names, data)
        for p in (float("nan"), -0.0, 1.5, float("inf"))
        for names in ([], ["'; DROP TABLE t; --", "ü\U0001f600"])
        for data in (b"", b"\x00\xff")
    ]
    for key in keys[::2]:
        copy.scylla.session.execute(insert, (*key, "'", "s"))
    copy.current()
    for key in keys:
        copy.scylla.session.execute(insert, (*key, "`\\", "t"))
    execute('DELETE FROM {t} WHERE p = 1.5 AND "a.b" = []', "DELETE FROM {t} WHERE p = -0.0")
    assert len(copy.current()) == len(keys) - 4 - 2
    assert copy.differences()[0] == 0, copy.differences()
    assert DeltaTable(copy.folder).metadata().configuration[STATE] == "__state"


def test_new_columns_and_fields_come_along(copy: Copy, execute: Execute) -> None:
    """Older rows have nulls in them; a column that was dropped keeps its values."""
    execute(
        "CREATE TYPE {ks}.point (x int)",
        "CREATE TABLE {t} (p int, c int, a point, l frozen<list<frozen<point>>>, gone int, "
        "st int static, PRIMARY KEY (p, c)) " + CDC,
        "INSERT INTO {t} (p, c, a, l, gone) VALUES (1, 1, {x: 1}, [{x: 1}], 1)",
        "INSERT INTO {t} (p, c, a, l, gone) VALUES (2, 1, {x: 1}, [{x: 1}], 1)",
    )
    copy.current()
    execute(
        "ALTER TYPE {ks}.point ADD y int",
        "ALTER TABLE {t} ADD note text",
        "ALTER TABLE {t} DROP gone",
        "UPDATE {t} SET st = 5 WHERE p = 1",  # needs the rows that lack the new field
        "INSERT INTO {t} (p, c, a, l, note) VALUES (1, 2, {x: 2, y: 2}, [{x: 2, y: 2}], 'n')",
    )
    rows = {(row["p"], row["c"]): row for row in copy.current()}
    assert copy.differences()[0] == 0, copy.differences()
    assert rows[1, 1]["a"] == {"x": 1, "y": None}
    assert rows[1, 2]["l"] == [{"x": 2, "y": 2}]
    assert [rows[key]["gone"] for key in ((1, 1), (1, 2), (2, 1))] == [1, None, 1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("ALTER TABLE {t} RENAME c TO d", "lacks key column d, and has the columns p, c, "),
        ("ALTER TYPE {ks}.point RENAME x TO z", "has the field a.x, which the table's type lacks"),
        (
            "ALTER TYPE {ks}.point ADD y int",
            "lacks the field m.value.y, which the table's",
        ),
        ('ALTER TABLE {t} ADD "__state" int', "the table has gained a column __state, and"),
        ('ALTER TABLE {t} ADD "A" int', "columns or fields A and a differ only in case, and"),
        ('ALTER TABLE {t} ADD "a`b" int', "column a`b has a backtick in its name, which deltalake"),
    ],
)
def test_changes_of_columns_that_cannot_be_followed(
    copy: Copy, execute: Execute, change: str, told: str
) -> None:
    """One line says why, the copy stays as it is, and so does its position."""
    execute(
        "CREATE TYPE {ks}.point (x int)",
        'CREATE TABLE {t} (p int, c int, "_x" int, a frozen<point>, '
        "m frozen<map<int, frozen<point>>>, PRIMARY KEY (p, c)) " + CDC,
        "INSERT INTO {t} (p, c) VALUES (1, 1)",
    )
    rows = copy.current()
    position = copy.file.read_text()
    execute(change, "DELETE FROM {t} WHERE p = 1")
    assert told in copy.error(2 if "backtick" in told else 1)
    assert (copy.rows(), copy.file.read_text()) == (rows, position)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ('p int PRIMARY KEY, a int, "A" int', "columns or fields A and a differ only in case"),
        ("p frozen<map<int, int>> PRIMARY KEY", "key column p is or contains a map, which a merge"),
        ("p int, c decimal, PRIMARY KEY (p, c)", "clustering column c contains decimals, which"),
        ('p int PRIMARY KEY, "a`b" int', "column a`b has a backtick in its name, which deltalake"),
    ],
)
def test_tables_that_cannot_be_copied(
    copy: Copy, execute: Execute, columns: str, told: str
) -> None:
    """One line says why, and nothing is written."""
    execute(f"CREATE TABLE {{t}} ({columns}) {CDC}")
    assert told in copy.error(2 if "backtick" in told else 1)
    assert not copy.folder.exists()
    assert not copy.file.exists()


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ("p int PRIMARY KEY, v int", "'delta': 'keys'", "delta"),
        ("p int PRIMARY KEY, l list<int>", "'postimage': false", "postimage"),
    ],
)
def test_logs_that_cannot_be_followed(
    copy: Copy, execute: Execute, columns: str, options: str, told: str
) -> None:
    """One line says why, and nothing is written."""
    execute(f"CREATE TABLE {{t}} ({columns}) WITH cdc = {{'enabled': true, {options}}}")
    assert told in copy.error()
    assert not copy.folder.exists()


def test_a_date_that_deltalake_cannot_write(copy: Copy, execute: Execute) -> None:
    """The run ends with one line, and what was copied before stays."""
    execute(f"CREATE TABLE {{t}} (p int PRIMARY KEY, d date) {CDC}")
    copy.current()
    execute("INSERT INTO {t} (p, d) VALUES (1, 0)")
    assert "column d has a date outside the years -262143 to 262142, which" in copy.error()
    assert copy.rows() == []


def test_many_files_are_compacted(
    copy: Copy, execute: Execute, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction is a commit of its own, after which the position still fits."""
    del small
    monkeypatch.setattr(keeping, "EVERY", 1)
    monkeypatch.setattr(table_copy, "MOST_FILES", 1)
    for number in range(3, 6):
        copy.current()
        execute(f"INSERT INTO {{t}} (p, v) VALUES ({number}, 1)")
    assert len(copy.current()) == 5
    table = DeltaTable(copy.folder)
    assert len(table.file_uris()) == 1
    assert "OPTIMIZE" in {commit["operation"] for commit in table.history()}


def test_a_failed_compaction_is_logged(
    copy: Copy, small: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The copy does not depend on it."""
    del small

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(keeping, "EVERY", 1)
    monkeypatch.setattr(DeltaTable, "vacuum", fail)
    assert len(copy.current()) == 2
    assert "maintenance_failed" in caplog.text


def test_rows_that_differ(copy: Copy, execute: Execute, small: None) -> None:
    """Compare tells rows that differ from rows that were changed since the copy's position."""
    del small
    copy.current()
    execute("UPDATE {t} SET v = 3 WHERE p = 1")
    for more in ((), ("--checkpoint", str(copy.file))):
        status, told = copy.differences(*more)
        assert (status, "1 rows were changed since the copy's position" in told) == (0, True)
    DeltaTable(copy.folder).update({"v": "7"}, predicate="p = 2")
    assert copy.differences()[0] == 1


def test_a_copy_that_cannot_be_compared(
    copy: Copy, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy without all rows, and the checkpoint of another copy, are refused with one line."""
    del small
    with monkeypatch.context() as patched:
        crashing(patched, DeltaFiles, "append", "before")
        with pytest.raises(Crash):
            copy.run()
    assert "does not have all rows of" in copy.differences()[1]
    copy.current()
    other = copy.file.with_name("other")
    other.write_text(copy.file.read_text().replace(f'"{copy.table}"', '"shop.orders"'))
    status, told = copy.differences("--checkpoint", str(other))
    assert (status, f"is of a copy of shop.orders, and not of {copy.table}: " in told) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_copy_survives_kills(copy: Copy, seed: int) -> None:
    """Processes are killed before and after commits and saves, and the copy equals the table."""
    orders, draw, kills = random_orders(copy, seed), random.Random(seed), 0
    script = [sys.executable, "-m", "tests.cdc_reader.cli.killed_mirror", copy.scylla.contact_point]
    for _ in range(8):
        orders.change(ROUND)
        is_snapshot = not copy.file.exists() or '"snapshot"' in copy.file.read_text()
        where = draw.choice(["append" if is_snapshot else "merge", "save"])
        words = [copy.table, str(copy.folder), where, draw.choice(["before", "after"])]
        run = [*script, *words, str(draw.randrange(1, 4))]
        found = subprocess.run(run, check=False, timeout=120, cwd=ROOT)
        assert found.returncode in (0, -signal.SIGKILL)
        kills += found.returncode != 0
    assert kills > 2
    orders.change(ROUND)
    assert by_key(copy.current()) == orders.rows()
