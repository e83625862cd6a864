"""Tables in Delta that `mirror` did not make, and values and names that deltalake cannot write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest
from deltalake.schema import PrimitiveType
from pyspark.errors import StreamingQueryException

from cdc_reader.errors import ConfigurationError, MirrorError, SchemaError
from pyspark_scylla_cdc import Mirror
from pyspark_scylla_cdc.mirroring import copy
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import rows_of, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

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
    with pytest.raises(ConfigurationError, match=f"the table has {told}, with which its files"):
        start(**place)


@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_names_that_deltalake_cannot_write(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """A backtick in a name, and a percent sign in a path, are refused at the start."""
    execute(f'CREATE TABLE {{t}} (pk int PRIMARY KEY, "a`b" int) {CDC}')
    with pytest.raises(ConfigurationError, match="column a`b has a backtick in its name"):
        start(**place)
    with pytest.raises(ConfigurationError, match="deltalake changes backslashes"):
        start(**{**place, "target": place["target"] + "%20"})


@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
@pytest.mark.parametrize(
    ("name", "properties", "told"),
    [
        ("v", {"delta.columnMapping.mode": "name"}, "the table has mapped columns, with which"),
        ("v", {"delta.appendOnly": "true"}, "its property delta.appendOnly allows no updates"),
        ("V", {}, "it has a column V, and the table a column v, which deltalake distinguishes"),
        ("generated", {}, "the table has generated columns, with which"),
    ],
)
def test_tables_that_deltalake_cannot_write(
    execute: Execute,
    start: Start,
    place: dict[str, str],
    name: str,
    properties: dict[str, str],
    told: str,
) -> None:
    """A table into which a later micro-batch could not be merged is refused at the start."""
    execute(f"CREATE TABLE {{t}} (pk int PRIMARY KEY, v int) {CDC}")
    computed = {"delta.generationExpression": "pk + 1"} if name == "generated" else {}
    integer = PrimitiveType("integer")
    cells = [deltalake.Field("pk", integer), deltalake.Field(name, integer, metadata=computed)]
    made = deltalake.DeltaTable.create(place["target"], deltalake.Schema(cells))
    log = Path(place["target"], "_delta_log", f"{made.version():020}.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"] = properties
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(ConfigurationError, match=told):
        start(**place)


def test_an_empty_value_in_a_partition_column(
    spark: SparkSession, execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """Delta tables cannot be partitioned by an empty text, and Iceberg tables can."""
    execute(
        f"CREATE TABLE {{t}} (pk int, r text, v int, PRIMARY KEY (pk, r)) {CDC}",
        "INSERT INTO {t} (pk, r, v) VALUES (1, '', 1)",
        "UPDATE {t} SET v = 2 WHERE pk = 1 AND r = ''",
    )
    if place["format"] == "iceberg":
        name = place["target"].rpartition(".")[0]
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")
        spark.sql(
            f"CREATE TABLE {place['target']} (pk int, r string, v int) USING iceberg "
            "PARTITIONED BY (r)"
        )
        copy = start(**place)
        assert copy.awaitTermination()
        assert rows_of(copy.read()) == [{"pk": 1, "r": "", "v": 2}]
        return
    kinds = [("pk", pa.int32()), ("r", pa.string()), ("v", pa.int32())]
    deltalake.DeltaTable.create(place["target"], schema=pa.schema(kinds), partition_by=["r"])
    with pytest.raises(MirrorError, match="column r has an empty value, which a Delta table"):
        start(**place).awaitTermination()


def test_a_partition_column_that_the_table_lacks(
    spark: SparkSession, execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """Rows go into the partition of null, and rows that are changed stay there."""
    execute(
        f"CREATE TABLE {{t}} (pk int PRIMARY KEY, v int) {CDC}",
        "INSERT INTO {t} (pk, v) VALUES (1, 1)",
        "INSERT INTO {t} (pk, v) VALUES (2, 1)",
    )
    if place["format"] == "iceberg":
        name = place["target"].rpartition(".")[0]
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")
        spark.sql(
            f"CREATE TABLE {place['target']} (pk INT, v INT, r STRING) USING iceberg "
            "PARTITIONED BY (r)"
        )
    else:
        kinds = [("pk", pa.int32()), ("v", pa.int32()), ("r", pa.string())]
        schema = pa.schema(kinds)
        deltalake.DeltaTable.create(place["target"], schema=schema, partition_by=["r"])
    assert start(**place).awaitTermination()
    execute("UPDATE {t} SET v = 2 WHERE pk = 1", "DELETE FROM {t} WHERE pk = 2")
    copy = start(**place)
    assert copy.awaitTermination()
    assert rows_of(copy.read()) == [{"pk": 1, "v": 2, "r": None}]


@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_a_path_with_the_signs_of_patterns(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """Spark reads the copy's files, and no others. deltalake writes to no path with brackets."""
    execute(
        f"CREATE TABLE {{t}} (pk int PRIMARY KEY, v int) {CDC}",
        "INSERT INTO {t} (pk, v) VALUES (1, 1)",
    )
    with pytest.raises(ConfigurationError, match=r"writes to no path with one of"):
        start(**{**place, "target": f"{place['target']}[1]"})
    place["target"] += "x{b,c}?*"
    assert start(**place).awaitTermination()
    execute("UPDATE {t} SET v = 2 WHERE pk = 1")
    copy = start(**place)
    assert copy.awaitTermination()
    assert rows_of(copy.read()) == [{"pk": 1, "v": 2}]


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
        ('"\u0131" text, i text', "columns or fields [i\u0131] and [i\u0131] differ only in case"),
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
    with pytest.raises(MirrorError, match="column d has a date outside the years") as ended:
        start(**place).awaitTermination()
    assert isinstance(ended.value.__cause__, SchemaError)
    assert str(ended.value) == f"the copy at {place['target']} ended: {ended.value.__cause__}"


@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_an_error_is_one_line(
    keyspace: str,
    execute: Execute,
    start: Start,
    place: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error of the source, and one of the target, are one line with the original as cause."""
    execute(
        f"CREATE TABLE {{t}} (pk int PRIMARY KEY, v int) {CDC}",
        "INSERT INTO {t} (pk, v) VALUES (1, 0)",
    )
    with monkeypatch.context() as patched:
        patched.setattr(copy, "update", _no_space)
        with pytest.raises(MirrorError) as ended:
            start(**place).awaitTermination()
    assert isinstance(ended.value.__cause__, OSError)
    assert str(ended.value) == (
        f"the copy at {place['target']} ended: OSError: [Errno 28] No space left on device; "
        "call mirror again when the cause is gone: it continues where it ended"
    )
    assert start(**place).awaitTermination()
    execute(
        "DROP TABLE {t}",
        f"CREATE TABLE {{t}} (pk int PRIMARY KEY, v int) {CDC}",
    )
    with pytest.raises(MirrorError) as ended:
        start(**place).awaitTermination()
    assert isinstance(ended.value.__cause__, StreamingQueryException)
    told = f"the copy at {place['target']} ended: checkpointLocation: the offset belongs to table"
    assert str(ended.value).startswith(f"{told} {keyspace}.t with id ")
    assert "\n" not in str(ended.value)


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")
