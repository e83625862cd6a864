"""`scylla-cdc compare` finds copies that Spark made equal to their tables, without Spark."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from cdc_reader.cli.command import main
from pyspark_scylla_cdc import Mirror, fold
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import IMAGES, TABLE
from tests.connectors.pyspark_scylla_cdc.tables.test_mirror import statements
from tests.connectors.pyspark_scylla_cdc.test_type_matrix import EVERY, NAMES, everything

if TYPE_CHECKING:
    from click.testing import Result
    from pyspark.sql import DataFrame

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

__all__ = ["everything"]

Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]
Start = Callable[..., Mirror]
FAR = ("date", "map<smallint, frozen<tuple<date, text>>>")
"""Types with dates that deltalake cannot write."""


def compare(scylla: Scylla, keyspace: str, target: Path, *more: str) -> Result:
    """Run the command."""
    words = ["compare", scylla.contact_point, f"{keyspace}.t", str(target)]
    return CliRunner().invoke(main, [*words, "--confidence-window", "0s", *more])


@pytest.mark.usefixtures("everything")
def test_values_of_each_type_in_parquet(
    scylla: Scylla, keyspace: str, execute: Execute, load: Load, tmp_path: Path
) -> None:
    """Files that `fold` filled are equal to the table, with each of Spark's types of timestamps.

    Spark's older type, of 96 bits, holds no times that are hundreds of thousands of years away.
    """
    near = [name for name, kind in NAMES.items() if kind != "timestamp"]
    [time] = NAMES.keys() - near
    for pk, day in ((2, "0001-01-01"), (3, "9999-12-31")):
        execute(f"UPDATE {{t}} SET {time} = '{day}' WHERE pk = {pk}")
    rows = fold(load(format="changes", includeDelta="true", maxPartitions="2"))
    for kind, count in (("TIMESTAMP_MICROS", 0), ("INT96", 2)):
        rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", kind)
        rows.write.parquet(str(tmp_path / kind))
        rows.sparkSession.conf.unset("spark.sql.parquet.outputTimestampType")
        found = compare(scylla, keyspace, tmp_path / kind)
        assert found.exit_code == (1 if count else 0), found.output
        assert f"{tmp_path / kind}: 4 rows" in found.stdout
        assert count == found.stdout.count("  with other values  pk=")
        found = compare(scylla, keyspace, tmp_path / kind, "--columns", ",".join(near))
        assert found.exit_code == 0, found.output
    for name in NAMES:
        execute(f"DELETE {name} FROM {{t}} WHERE pk = 1")
    found = compare(scylla, keyspace, tmp_path / "TIMESTAMP_MICROS", "--limit", "9")
    written = sorted(name for name, kind in NAMES.items() if EVERY[kind][1][1] is not None)
    assert f"  with other values  pk=1: {', '.join(written)}" in found.stdout.splitlines()


@pytest.mark.usefixtures("everything")
def test_values_of_each_type_in_a_delta_table(
    scylla: Scylla, keyspace: str, start: Start, tmp_path: Path
) -> None:
    """A Delta table that `mirror` fills is equal to the table, also if decimals are numbers."""
    names = [name for name, kind in NAMES.items() if kind not in FAR]
    start({"columns": ",".join(names)}).awaitTermination()
    found = compare(scylla, keyspace, tmp_path / "copy", "--columns", ",".join(names))
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[1:] == [f"{tmp_path / 'copy'}: 4 rows", "no row differs"]
    all_columns = compare(scylla, keyspace, tmp_path / "copy")
    assert all_columns.exit_code == 2
    assert "it lacks column " in all_columns.stderr


def test_decimals_as_numbers(
    scylla: Scylla, keyspace: str, execute: Execute, start: Start, tmp_path: Path
) -> None:
    """Numbers equal the decimals of the table, in keys too, whatever their scale."""
    execute(
        "CREATE TABLE {t} (pk decimal, ck varint, d decimal, l list<varint>, "
        "m frozen<map<decimal, frozen<tuple<int, varint>>>>, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'postimage': true}",
        "INSERT INTO {t} (pk, ck, d, l, m) VALUES (2.50, 9, 1.5, [7, -8], {2.5: (3, 4)})",
        "INSERT INTO {t} (pk, ck, d) VALUES (1e2, -9, -0.00)",
    )
    start({"decimalType": "decimal(20, 4), ck: decimal(38, 0)"}).awaitTermination()
    found = compare(scylla, keyspace, tmp_path / "copy")
    assert found.exit_code == 0, found.output
    execute("UPDATE {t} SET d = 1.5001 WHERE pk = 2.50 AND ck = 9")
    found = compare(scylla, keyspace, tmp_path / "copy", "--position", "now")
    assert found.exit_code == 1
    assert found.stdout.splitlines()[-1] == '  with other values  pk="2.5000", ck=9: d'


@pytest.mark.parametrize("history", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_copy_that_is_behind_does_not_differ(
    scylla: Scylla,
    keyspace: str,
    execute: Execute,
    start: Start,
    tmp_path: Path,
    history: bool,
) -> None:
    """A copy equals its table, and later statements of all kinds make no difference."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    execute(f"{TABLE}{IMAGES['full images']}")
    start(history=history).awaitTermination()
    for _ in range(2):
        execute(*statements(draw, 25))
        start(history=history).awaitTermination()
        found = compare(scylla, keyspace, tmp_path / "copy")
        assert found.exit_code == 0, found.output
        assert found.stdout.splitlines()[2:] == ["no row differs"]
    execute(*statements(draw, 12))
    found = compare(scylla, keyspace, tmp_path / "copy")
    assert found.exit_code == 0, found.output
    assert "rows were changed since the copy's position, " in found.stdout
    found = compare(scylla, keyspace, tmp_path / "copy", "--position", "now")
    assert found.exit_code == 1
