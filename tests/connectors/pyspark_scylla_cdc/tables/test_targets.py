"""Tables in Delta that `mirror` did not make, and values and names that deltalake cannot write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from cdc_reader.errors import ConfigurationError, SchemaError
from pyspark_scylla_cdc import Mirror
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import rows_of, table_of

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("one_job_a_fold")]

Execute = Callable[..., None]
Start = Callable[..., Mirror]
CDC = "WITH cdc = {'enabled': true}"


@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_a_partitioned_table(
    scylla: Scylla, keyspace: str, execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """Columns that are not written keep their values, whatever the table is partitioned by."""
    kinds = [("d", pa.date32()), ("r", pa.string()), ("pk", pa.int32()), ("v", pa.int32())]
    at = ("at", pa.timestamp("us", "UTC"))
    deltalake.DeltaTable.create(
        place["target"], schema=pa.schema([*kinds, at]), partition_by=["r", "d", "at"]
    )
    execute(
        f"CREATE TABLE {{t}} (pk int PRIMARY KEY, v int, r text, d date, at timestamp) {CDC}",
        "INSERT INTO {t} (pk, v, r, d, at) VALUES (1, 1, 'a=b/ \u00fc%', '2026-11-28', 7)",
        "INSERT INTO {t} (pk, v, r, d, at) VALUES (2, 1, '_', null, -7)",
        "INSERT INTO {t} (pk, v) VALUES (3, 1)",
    )
    assert start(**place).awaitTermination()
    execute(*(f"UPDATE {{t}} SET v = 2 WHERE pk = {pk}" for pk in (1, 2, 3)))
    copy = start(**place)
    assert copy.awaitTermination()
    found = {row["pk"]: row for row in rows_of(copy.read())}
    for row in table_of(scylla, f"{keyspace}.t"):
        copied = found[row["pk"]]
        assert (copied["v"], copied["r"]) == (2, row["r"])
        assert str(copied["d"]) == str(row["d"])
        assert (copied["at"] is None) == (row["at"] is None)


@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
@pytest.mark.parametrize(
    ("feature", "told"),
    [("deletionVectors", "deletion vectors"), ("columnMapping", "mapped columns")],
)
def test_files_that_do_not_show_the_rows(
    execute: Execute, start: Start, place: dict[str, str], feature: str, told: str
) -> None:
    """A table whose files cannot be read alone is refused."""
    execute(f"CREATE TABLE {{t}} (pk int PRIMARY KEY, v int) {CDC}")
    schema = pa.schema([("pk", pa.int32()), ("v", pa.int32())])
    deltalake.DeltaTable.create(place["target"], schema=schema)
    log = Path(place["target"], "_delta_log", f"{0:020}.json")
    features = {"readerFeatures": [feature], "writerFeatures": [feature]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    changed = ({"protocol": protocol} if "protocol" in line else line for line in lines)
    log.write_text("\n".join(map(json.dumps, changed)))
    with pytest.raises(ConfigurationError, match=f"the table has {told}, so its files do not"):
        start(**place)


@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_names_that_deltalake_cannot_write(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """A backtick in a name, and a percent sign in a path, are refused at the start."""
    execute(f'CREATE TABLE {{t}} (pk int PRIMARY KEY, "a`b" int) {CDC}')
    with pytest.raises(ConfigurationError, match="column a`b has a backtick in its name"):
        start(**place)
    with pytest.raises(ConfigurationError, match="deltalake decodes"):
        start(**{**place, "target": place["target"] + "%20"})


def test_names_that_the_format_reserves(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """A column with the name of one of the format's own columns is refused at the start."""
    taken = "_file" if place["format"] == "iceberg" else "_tmp_metadata_row_index"
    execute(
        f'CREATE TABLE {{t}} (pk int PRIMARY KEY, "{taken}" int, "{taken.upper()}_" int) {CDC}',
        f'INSERT INTO {{t}} (pk, "{taken}", "{taken.upper()}_") VALUES (1, 2, 3)',
    )
    with pytest.raises(ConfigurationError, match=f"column {taken} has a name that .* uses"):
        start(**place)
    copy = start({"columns": f"{taken.upper()}_"}, **place)
    assert copy.awaitTermination()
    assert rows_of(copy.read()) == [{"pk": 1, f"{taken.upper()}_": 3}]


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ('name text, "Name" text', "columns or fields Name and name differ only in case"),
        ("v frozen<map<int, frozen<pair>>>", "columns or fields [xX] and [xX] differ only in case"),
    ],
)
def test_names_that_differ_only_in_case(
    keyspace: str,
    execute: Execute,
    start: Start,
    tmp_path: Path,
    columns: str,
    match: str,
) -> None:
    """They are refused at the start; a column can be left out."""
    execute(
        f'CREATE TYPE {keyspace}.pair (x int, "X" int)',
        f"CREATE TABLE {{t}} (pk int PRIMARY KEY, w int, {columns}) {CDC}",
    )
    with pytest.raises(SchemaError, match=match):
        start(target=str(tmp_path / "copy"))
    start({"columns": "w"}, target=str(tmp_path / "copy")).stop()


@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_a_date_that_deltalake_cannot_write(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """The query ends with an error that names the column."""
    execute(
        f"CREATE TABLE {{t}} (pk int PRIMARY KEY, d date) {CDC}",
        "INSERT INTO {t} (pk, d) VALUES (1, 0)",
    )
    with pytest.raises(StreamingQueryException, match="column d has a date outside the years"):
        start(**place).awaitTermination()
