"""Each CQL type with null, empty and extreme values, in a batch and in a stream."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cassandra.util import Date, Duration, Time

from cdc_reader.cql.types import NATIVE_TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]
LOW, HIGH = uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)
TIMES = [
    uuid.UUID(text)
    for text in ("00000000-0000-1000-8080-808080808080", "ffffffff-ffff-1fff-7f7f-7f7f7f7f7f7f")
]
LAST_MS = (2**63 - 1) // 1_000
MANY = 10**99 + 7
FAR = Decimal("-1E-70"), Decimal(f"{MANY}.{MANY}")
MATRIX: dict[str, list[tuple[Any, Any]]] = {
    "ascii": [("", ""), ("~\0", "~\0")],
    "bigint": [(-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1)],
    "blob": [(b"", b""), (bytes(range(256)), bytes(range(256)))],
    "boolean": [(False, False), (True, True)],
    "date": [(Date(-(2**31)), -(2**31)), (Date(2**31 - 1), 2**31 - 1)],
    "decimal": [(FAR[0], "-1E-70"), (FAR[1], f"{MANY}.{MANY}")],
    "double": [(float("nan"), "nan"), (-1.7976931348623157e308, -1.7976931348623157e308)],
    "duration": [
        (Duration(0, 0, 0), (0, 0, 0)),
        (Duration(-(2**31), -(2**31), -(2**63)), (-(2**31), -(2**31), -(2**63))),
    ],
    "float": [(float("-inf"), float("-inf")), (-0.0, -0.0)],
    "inet": [("0.0.0.0", "0.0.0.0"), ("ffff::ffff", "ffff::ffff")],
    "int": [(-(2**31), -(2**31)), (2**31 - 1, 2**31 - 1)],
    "smallint": [(-(2**15), -(2**15)), (2**15 - 1, 2**15 - 1)],
    "text": [("", ""), ("\U0010ffff é\n", "\U0010ffff é\n")],
    "time": [(Time(0), 0), (Time(86_399_999_999_999), 86_399_999_999_999)],
    "timestamp": [(-LAST_MS, -LAST_MS * 1_000), (LAST_MS, LAST_MS * 1_000)],
    "timeuuid": [(TIMES[0], str(TIMES[0])), (TIMES[1], str(TIMES[1]))],
    "tinyint": [(-128, -128), (127, 127)],
    "uuid": [(LOW, str(LOW)), (HIGH, str(HIGH))],
    "varint": [(-MANY, str(-MANY)), (0, "0")],
    "frozen<list<decimal>>": [([], []), ([Decimal("1.50"), FAR[1]], ["1.50", f"{MANY}.{MANY}"])],
    "frozen<set<uuid>>": [(set(), []), ({HIGH}, [str(HIGH)])],
    "frozen<map<text, frozen<list<inet>>>>": [({}, {}), ({"": ["::1"]}, {"": ["::1"]})],
    "tuple<int, frozen<list<text>>, boolean>": [
        ((None, None, None), (None, None, None)),
        ((1, [""], False), (1, [""], False)),
    ],
    "frozen<part>": [((None, None), (None, None)), ((HIGH, [[1], []]), (str(HIGH), [[1], []]))],
}
MULTI_CELL: dict[str, list[tuple[Any, Any]]] = {
    "list<double>": [([], None), ([1.5, 1.5], [1.5, 1.5])],
    "set<varint>": [(set(), None), ({MANY, -1}, ["-1", str(MANY)])],
    "map<smallint, frozen<tuple<date, text>>>": [
        ({}, None),
        ({-7: (None, ""), 7: (Date(0), None)}, {-7: (None, ""), 7: (Date(0).date(), None)}),
    ],
    "part": [((None, None), None), ((LOW, None), (str(LOW), None))],
}
EVERY = {**MATRIX, **MULTI_CELL}
NAMES = {f"c{number}": kind for number, kind in enumerate(EVERY)}
AS_NUMBERS = {"date": "unix_date", "timestamp": "unix_micros"}
"""SQL functions that turn values into numbers, because Python's calendar is too small for them."""


@pytest.fixture
def everything(scylla: Scylla, keyspace: str) -> None:
    """Two rows with a value in each column, a row with nulls, and one with only keys."""
    scylla.session.execute(
        f"CREATE TYPE {keyspace}.part (a uuid, b frozen<list<frozen<list<int>>>>)"
    )
    columns = ", ".join(f"{name} {kind}" for name, kind in NAMES.items())
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, {columns}) "
        "WITH cdc = {'enabled': true, 'postimage': true}"
    )
    marks = ", ".join("?" for _ in NAMES)
    insert = scylla.session.prepare(
        f"INSERT INTO {keyspace}.t (pk, {', '.join(NAMES)}) VALUES (?, {marks})"
    )
    for pk in (0, 1):
        scylla.session.execute(insert, (pk, *(EVERY[kind][pk][0] for kind in NAMES.values())))
    scylla.session.execute(insert, (2, *(None for _ in NAMES)))
    scylla.session.execute(f"INSERT INTO {keyspace}.t (pk) VALUES (3)")


@pytest.fixture(params=["batch", "stream"])
def frame(
    request: pytest.FixtureRequest, spark: SparkSession, load: Load, tmp_path: Path
) -> Callable[..., DataFrame]:
    """Reads a batch, or streams into files and reads the files."""

    def read(**options: str) -> DataFrame:
        options["maxPartitions"] = "2"
        if request.param == "batch":
            return load(**options)
        query = (
            load(stream=True, confidenceWindow="0s", **options)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        query.awaitTermination()
        return spark.read.parquet(str(tmp_path / "rows"))

    return read


def test_all_native_types_are_here() -> None:
    """The matrix contains each native type except counters, which have no log."""
    assert set(MATRIX) >= NATIVE_TYPES - {"counter"}


@pytest.mark.usefixtures("everything")
def test_values(frame: Callable[..., DataFrame]) -> None:
    """Each value is read exactly as written. Null and empty values stay distinct."""
    columns = [
        f"{AS_NUMBERS[kind]}({name}) AS {name}" if kind in AS_NUMBERS else name
        for name, kind in NAMES.items()
    ]
    rows = {row["pk"]: row for row in frame(format="changes").selectExpr("pk", *columns).collect()}
    assert set(rows) == {0, 1, 2, 3}
    for name, kind in NAMES.items():
        for pk in (0, 1):
            assert plain(rows[pk][name]) == plain(EVERY[kind][pk][1]), kind
        assert rows[2][name] is None, kind
        assert rows[3][name] is None, kind


@pytest.mark.usefixtures("everything")
def test_decimal_type(load: Load) -> None:
    """With `decimalType`, decimals are exact.

    A value that does not fit the type causes an error that contains the option's name.
    """
    project = {name: kind for name, kind in NAMES.items() if kind in ("decimal", "varint")}
    frame = load(format="changes", columns=",".join(project), decimalType="decimal(38, 6)")
    types = {name: frame.schema[name].dataType.simpleString() for name in project}
    assert set(types.values()) == {"decimal(38,6)"}
    with pytest.raises(
        Exception, match=r"decimalType is 'decimal\(38, 6\)': column c\d+ holds -?1"
    ):
        frame.collect()


@pytest.mark.slow
def test_nested_decimals(execute: Execute, load: Load) -> None:
    """`decimalType` applies within collections, tuples and maps, and differs by column."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, d decimal, l list<varint>, "
        "m frozen<map<decimal, frozen<tuple<int, varint>>>>) "
        "WITH cdc = {'enabled': true, 'postimage': true}",
        "INSERT INTO {t} (pk, d, l, m) VALUES (1, 1.50, [7, -8], {2.5: (3, 4)})",
        "INSERT INTO {t} (pk) VALUES (2)",
    )
    types = "decimal(20,2), d: string"
    options = {"format": "changes", "decimalType": types, "maxPartitions": "2"}
    rows = {row["pk"]: row for row in load(**options).collect()}
    assert (rows[2]["d"], rows[2]["l"], rows[2]["m"]) == (None, None, None)
    assert (rows[1]["d"], rows[1]["l"]) == ("1.50", [Decimal(7), Decimal(-8)])
    assert rows[1]["m"] == {Decimal("2.50"): (3, Decimal(4))}
    assert load(decimalType="decimal(20,2)", maxPartitions="2").count() == 4


@pytest.mark.slow
def test_timestamps_that_spark_cannot_hold(
    scylla: Scylla, keyspace: str, execute: Execute, load: Load
) -> None:
    """A timestamp beyond 64 bits of µs ends the query, unless its column is left out."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, ts timestamp, v int) WITH cdc = {'enabled': true}"
    )
    insert = scylla.session.prepare(f"INSERT INTO {keyspace}.t (pk, ts, v) VALUES (1, ?, 2)")
    scylla.session.execute(insert, (2**63 - 1,))
    with pytest.raises(
        Exception, match=r"column ts holds a timestamp outside .*; use the option columns to leave"
    ):
        load().collect()
    assert [row["v"] for row in load(columns="v").collect()] == [2]


@pytest.mark.slow
def test_times_beyond_the_calendar_of_python(
    scylla: Scylla, keyspace: str, execute: Execute, load: Load
) -> None:
    """Spark holds times beyond Python's calendar, but Python can collect them only as numbers."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, ts timestamp, d date) WITH cdc = {'enabled': true}"
    )
    insert = scylla.session.prepare(f"INSERT INTO {keyspace}.t (pk, ts, d) VALUES (1, ?, ?)")
    millis, days = 300_000_000_000_000, 3_000_000
    scylla.session.execute(insert, (millis, Date(days)))
    frame = load(maxPartitions="1")
    for name in ("ts", "d"):
        with pytest.raises((ValueError, OverflowError)):
            frame.select(name).collect()
    numbers = frame.selectExpr("unix_micros(ts) AS ts", "unix_date(d) AS d").collect()
    assert [(row["ts"], row["d"]) for row in numbers] == [(millis * 1_000, days)]


def plain(value: Any) -> Any:
    """Return the value with NaN replaced, so that equal values compare equal."""
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - that is what NaN is
        return "nan"
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, bytearray) else value
