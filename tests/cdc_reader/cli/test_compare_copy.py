"""`scylla-cdc compare`, with copies in Parquet files and in Delta tables."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from attrs import evolve
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from cdc_reader import CdcReader, WindowComplete
from cdc_reader.checkpoints.encoding import cursor_to_json
from cdc_reader.cli.command import main
from cdc_reader.config import ReadConfig
from cdc_reader.reading.cursor import Checkpoint

if TYPE_CHECKING:
    from click.testing import Result

    from cdc_reader.testing import Scylla

CREATE = (
    "CREATE TABLE {t} (p int, c text, v double, l list<text>, m map<text, int>, s set<int>, "
    "st int static, PRIMARY KEY (p, c)) WITH cdc = {{'enabled': true}}"
)
ROWS = 60
UNKNOWN = (
    "the position of the copy is not known: rows that were changed since then count as different "
    "(--checkpoint, --position)"
)

Copy = Callable[[], pa.Table]
Begun = Callable[[], Checkpoint]
Execute = Callable[..., None]
DAY = 86_400 * 1_000_000


@pytest.fixture
def table(scylla: Scylla, keyspace: str) -> str:
    """A table with rows, and a partition that has only a static column."""
    name = f"{keyspace}.t"
    scylla.session.execute(CREATE.format(t=name))
    for number in range(ROWS):
        scylla.session.execute(
            f"INSERT INTO {name} (p, c, v, l, m, s) VALUES ({number % 7}, 'c{number}', NaN, "
            f"['x', 'y'], {{'k': {number}, 'a': 1}}, {{2, 1}})"
        )
    scylla.session.execute(f"UPDATE {name} SET st = 7 WHERE p = 1000")
    return name


@pytest.fixture
def execute(scylla: Scylla, table: str) -> Execute:
    """Execute statements; ``{t}`` stands for the table."""

    def execute(*statements: str) -> None:
        for statement in statements:
            scylla.session.execute(statement.replace("{t}", table))

    return execute


@pytest.fixture
def rows(scylla: Scylla, table: str) -> Iterator[Copy]:
    """Return the rows of the table, and its position in the schema's metadata."""
    settled = ReadConfig(confidence_window="0s")
    with CdcReader(scylla.contact_point, table, config=settled) as reader:

        def copied() -> pa.Table:
            snapshot = reader.table.snapshot()
            batches = list(snapshot.batches())
            copy = pa.Table.from_batches(batches, snapshot.arrow_schema)
            return copy.replace_schema_metadata({"position": str(snapshot.position // 1_000)})

        yield copied


@pytest.fixture
def begun(scylla: Scylla, table: str) -> Iterator[Begun]:
    """Return the checkpoint of a reader that has read everything."""
    settled = ReadConfig(confidence_window="0s")
    with CdcReader(scylla.contact_point, table, config=settled) as reader:

        def begun() -> Checkpoint:
            *_, last = reader.table.follow("-1s", "now")
            assert isinstance(last, WindowComplete)
            return last.checkpoint

        yield begun


def compare(scylla: Scylla, table: str, target: Path | str, *more: str) -> Result:
    """Run the command."""
    words = ["compare", scylla.contact_point, table, str(target), "--confidence-window", "0s"]
    return CliRunner().invoke(main, [*words, *more])


def test_an_equal_copy_has_status_0(scylla: Scylla, table: str, rows: Copy, tmp_path: Path) -> None:
    """A Parquet file with equal rows is equal, whatever the order of rows, sets and maps."""
    copy = rows().sort_by([("c", "descending")])
    turned = pa.array([cell and cell[::-1] for cell in copy["m"].to_pylist()], copy["m"].type)
    copy = copy.set_column(copy.schema.get_field_index("m"), "m", turned)
    turned = pa.array([cell and cell[::-1] for cell in copy["s"].to_pylist()], copy["s"].type)
    copy = copy.set_column(copy.schema.get_field_index("s"), "s", turned)
    copy = copy.append_column("dropped", pa.array([1] * copy.num_rows))
    pq.write_table(copy, tmp_path / "copy.parquet")
    found = compare(scylla, table, tmp_path / "copy.parquet")
    assert (found.exit_code, found.stderr) == (0, "")
    assert found.stdout.splitlines() == [
        f"{table} at {scylla.contact_point}: {ROWS + 1} rows",
        f"{tmp_path / 'copy.parquet'}: {ROWS + 1} rows",
        "no row differs",
    ]


def test_each_kind_of_difference_is_told(
    scylla: Scylla, table: str, rows: Copy, execute: Execute, tmp_path: Path
) -> None:
    """Rows that differ are listed with their keys and columns. Without a position, all count."""
    copy = rows()
    twice = copy.filter(pc.equal(copy["c"], "c9"))
    write_deltalake(str(tmp_path / "copy"), pa.concat_tables([copy, twice]))
    execute(
        "DELETE FROM {t} WHERE p = 3 AND c = 'c3'",
        "INSERT INTO {t} (p, c) VALUES (2000, 'new')",
        "UPDATE {t} SET l = ['y', 'x'], v = -0.0 WHERE p = 5 AND c = 'c5'",
        "DELETE st FROM {t} WHERE p = 1000",
    )
    found = compare(scylla, table, tmp_path / "copy")
    assert found.exit_code == 1, found.output
    _, counts, note, summary, *lines = found.stdout.splitlines()
    assert counts == f"{tmp_path / 'copy'}: {ROWS + 2} rows"
    assert summary == (
        "5 rows differ: 1 only in the source, 3 only in the target, 1 with other values"
    )
    assert sorted(lines) == [
        '  only in the source  p=2000, c="new"',
        "  only in the target  p=1000",
        '  only in the target  p=2, c="c9"',
        '  only in the target  p=3, c="c3"',
        '  with other values  p=5, c="c5": l, v',
    ]
    assert note == UNKNOWN
    some = compare(scylla, table, tmp_path / "copy", "--columns", "m", "--limit", "1")
    assert some.exit_code == 1
    assert some.stdout.splitlines()[3].startswith("4 rows differ: ")
    assert some.stdout.splitlines()[5] == "... and 3 more (--limit)"


def test_changes_after_the_position_are_not_differences(
    scylla: Scylla, table: str, rows: Copy, execute: Execute, tmp_path: Path
) -> None:
    """Rows changed after the position are counted apart, and only where the change explains it."""
    execute("UPDATE {t} SET st = 1 WHERE p = 4")
    copy = rows()
    at = copy.schema.metadata[b"position"].decode()
    is_kept = pc.fill_null(pc.not_equal(copy["c"], "c8"), True)
    copy = copy.filter(is_kept)
    wrong = ["c4", "c5"]  # c4 in a partition whose static column changes later
    cells = zip(copy["c"].to_pylist(), copy["v"].to_pylist(), strict=True)
    values = [1.0 if c in wrong else v for c, v in cells]
    copy = copy.set_column(copy.schema.get_field_index("v"), "v", pa.array(values, pa.float64()))
    pq.write_table(copy, tmp_path / "copy.parquet")
    execute(
        "UPDATE {t} SET st = 2 WHERE p = 4",
        "INSERT INTO {t} (p, c, v) VALUES (1000, 'new', 1)",
        "DELETE FROM {t} WHERE p = 2 AND c = 'c9'",
        "UPDATE {t} SET v = 3 WHERE p = 3 AND c = 'c3'",
        "DELETE FROM {t} WHERE p = 6",
        "DELETE FROM {t} WHERE p = 0 AND c >= 'c4' AND c < 'c45'",
    )
    found = compare(scylla, table, tmp_path / "copy.parquet", "--position", at)
    assert found.exit_code == 1, found.output
    _, _, note, summary, *lines = found.stdout.splitlines()
    assert summary == (
        "3 rows differ: 1 only in the source, 0 only in the target, 2 with other values"
    )
    assert sorted(lines) == [
        '  only in the source  p=1, c="c8"',
        '  with other values  p=4, c="c4": v',
        '  with other values  p=5, c="c5": v',
    ]
    others_of_4, rows_of_6 = 7, 8
    row_instead_of_statics, deleted_row, updated_row, row_of_range = 2, 1, 1, 1
    count = others_of_4 + rows_of_6
    count += row_instead_of_statics + deleted_row + updated_row + row_of_range
    assert re.fullmatch(f"{count} rows were changed since the copy's position, 20[-0-9T:.]+Z", note)
    assert compare(scylla, table, tmp_path / "copy.parquet", "--position", "now").exit_code == 1


def test_only_current_versions_are_compared(
    scylla: Scylla, table: str, rows: Copy, tmp_path: Path
) -> None:
    """In a copy with all versions of the rows, old versions are ignored."""
    copy = rows()
    versions = [
        copy.append_column("is_current", pa.array([is_current] * copy.num_rows))
        for is_current in (True, False)
    ]
    both = pa.concat_tables(versions)
    for name in ("valid_from", "valid_to"):
        both = both.append_column(name, pa.nulls(both.num_rows, pa.timestamp("us", tz="UTC")))
    write_deltalake(str(tmp_path / "copy"), both)
    found = compare(scylla, table, tmp_path / "copy")
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[1].endswith(f": {ROWS + 1} rows")


def save_position(folder: Path, table: str, start: Checkpoint, snapshot: str = "done") -> None:
    """Save a position as a Spark query does that has committed a micro-batch."""
    stored = cursor_to_json(evolve(start, snapshot=None))
    offset = {**stored, "version": 1, "position": start.position, "table": table}
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    (folder / "offsets" / "0").write_text(
        f"v1\n{{}}\n{json.dumps({**offset, 'snapshot': snapshot})}"
    )
    (folder / "commits" / "0").write_text("v1\n{}")


def test_the_position_is_in_the_checkpoint(
    scylla: Scylla, table: str, rows: Copy, execute: Execute, begun: Begun, tmp_path: Path
) -> None:
    """The checkpoint beside the copy, or the one that is given, has the copy's position."""
    path = tmp_path / "copy.parquet"
    pq.write_table(rows(), path)
    start = begun()
    execute("UPDATE {t} SET v = 3 WHERE p = 3 AND c = 'c3'")
    save_position(tmp_path / "copy.parquet.checkpoint", table, start)
    found = compare(scylla, table, path)
    assert found.exit_code == 0, found.output
    _, _, note, result = found.stdout.splitlines()
    assert note.startswith("1 rows were changed since the copy's position, ")
    assert result == "no row differs"
    keyspace, _, name = table.partition(".")
    inside = tmp_path / "lake" / keyspace / name
    inside.mkdir(parents=True)
    pq.write_table(pq.read_table(path), inside / "0.parquet")
    save_position(tmp_path / "lake.checkpoint" / keyspace / name, table, start)
    found = compare(scylla, table, inside)
    assert found.exit_code == 0, found.output
    assert "1 rows were changed since the copy's position, " in found.stdout
    save_position(tmp_path / "other", table, begun())
    found = compare(scylla, table, path, "--checkpoint", str(tmp_path / "other"))
    assert found.exit_code == 1, found.output
    assert found.stdout.splitlines()[2].startswith("1 rows differ: ")


def test_a_position_that_tells_nothing(
    scylla: Scylla, table: str, rows: Copy, execute: Execute, begun: Begun, tmp_path: Path
) -> None:
    """A position within a snapshot, or before the oldest row of the log, is an error."""
    path = tmp_path / "copy.parquet"
    pq.write_table(rows(), path)
    save_position(tmp_path / "begun", table, begun(), "pending")
    found = compare(scylla, table, path, "--checkpoint", str(tmp_path / "begun"))
    assert found.exit_code == 2
    assert f"the query of {tmp_path / 'begun'} has not copied all rows of {table} yet" in (
        found.stderr
    )
    old = begun()
    save_position(tmp_path / "old", table, evolve(old, position=old.position - 2 * DAY))
    words = (path, "--checkpoint", str(tmp_path / "old"))
    assert compare(scylla, table, *words).exit_code == 0  # the log is not needed
    execute("UPDATE {t} SET v = 3 WHERE p = 3 AND c = 'c3'")
    found = compare(scylla, table, *words)
    assert found.exit_code == 2
    assert re.search(rf"changes since \S+, the position of {path}, are no longer", found.stderr)


def test_copies_that_cannot_be_compared_have_status_2(
    scylla: Scylla, table: str, rows: Copy, tmp_path: Path
) -> None:
    """A wrong path, a copy of another table and options for clusters cause a one-line error."""
    copy, path = rows(), tmp_path / "copy.parquet"
    pq.write_table(copy, path)
    pq.write_table(copy.drop_columns(["c", "v"]), tmp_path / "part.parquet")
    other = copy.set_column(0, "p", pa.array(["x"] * copy.num_rows))
    pq.write_table(other, tmp_path / "other.parquet")
    (tmp_path / "text").write_text("no Parquet")
    for words, message in (
        ((str(tmp_path / "none"),), f"target is '{tmp_path / 'none'}': give the path of a Delta"),
        ((str(tmp_path / "text"),), f"target is '{tmp_path / 'text'}': give the path of a Delta"),
        ((str(tmp_path / "part.parquet"),), f"part.parquet cannot be compared with {table}: it "),
        ((str(tmp_path / "part.parquet"),), 'key column "c" text, it lacks column "v" double'),
        ((str(tmp_path / "other.parquet"),), 'column "p" is of type string, not int'),
        ((str(path), "ks.t"), "which has one copy: leave out ks.t"),
        ((str(path), "--columns", "w"), f"columns is 'w': {table} has no such column"),
        ((str(path), "--target-consistency", "ONE"), "--target-consistency is for a cluster"),
        ((str(path), "--checkpoint", str(tmp_path / "no")), "Invalid value for '--checkpoint'"),
        ((str(path), "--position", "soon"), "--position is 'soon': give "),
        ((scylla.contact_point, "--position", "now"), "--position is for a copy at a path"),
        (
            (str(path), "--checkpoint", str(tmp_path), "--position", "now"),
            "leave out --position",
        ),
    ):
        found = compare(scylla, table, words[0], *words[1:])
        assert found.exit_code == 2, (words, found.output)
        assert message in found.stderr
        assert found.stdout == ""


def test_what_deltalake_cannot_read_is_an_error(
    scylla: Scylla, table: str, rows: Copy, tmp_path: Path
) -> None:
    """A table with a feature of newer readers is refused, with the way to compare it."""
    path = str(tmp_path / "copy")
    write_deltalake(path, rows())
    [log] = (tmp_path / "copy" / "_delta_log").glob("*0.json")
    features: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}
    features |= {kind: ["deletionVectors"] for kind in ("readerFeatures", "writerFeatures")}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines = [{"protocol": features} if "protocol" in line else line for line in lines]
    log.write_text("\n".join(map(json.dumps, lines)))
    assert DeltaTable(path).protocol().min_reader_version == 3
    found = compare(scylla, table, path)
    assert found.exit_code == 2, found.output
    assert f"deltalake cannot read {path}" in found.stderr
    assert "compare it in Spark, with Mirror.compare()" in found.stderr
