"""Rows that cannot be converted: they end the query, are skipped, or are quarantined."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException

from cdc_reader._time import SystemClock, format_timestamp
from cdc_reader.errors import ColumnDecodeError, ConfigurationError, SchemaError
from pyspark_scylla_cdc import fold
from pyspark_scylla_cdc.batch import BatchReader
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows = Callable[..., list[dict[str, Any]]]
Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]
Row = dict[str, Any]

TABLE = (
    "CREATE TABLE IF NOT EXISTS {t} (pk int, k varint, s decimal static, d decimal, "
    "l list<decimal>, at timestamp, ms bigint, PRIMARY KEY (pk, k)) WITH cdc = "
)
FULL = "{'enabled': true, 'preimage': 'full', 'postimage': true}"
POSTIMAGES = "{'enabled': true, 'postimage': true}"
DELTAS = "{'enabled': true}"
FITTING = {"decimalType": "decimal(6, 2)"}
NUMBERS = ("1", "2.50", "-9999.99", "null", "1.234", "99999.5", "1e10")
KEYS = ("1", "2", "3", "99999", "123456", "-99999999999999999999999999999999999999999")
TIMES = ("1000", "-86400000", "null", str((1 << 63) - 1), str(1 - (1 << 63)))
"""The last three numbers, the last three keys and the last two times cannot be converted.

Times are written in ms, and Arrow holds them in µs.
"""
UNITS = Context(prec=6, traps=[Inexact, InvalidOperation])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BAD = object()
"""Stands for a cell that cannot be converted."""

WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "log": (FULL, {"format": "log"}),
    "changes": (FULL, {"format": "changes", "rangeDeletes": "emit"}),
    "changes, postimages": (POSTIMAGES, {"format": "changes", "rangeDeletes": "skip"}),
    "changes, deltas": (
        FULL,
        {"format": "changes", "rangeDeletes": "emit", "includeDelta": "true"},
    ),
    "changes, deltas only": (
        DELTAS,
        {"format": "changes", "rangeDeletes": "skip", "includeDelta": "true", "columns": "s,d,ms"},
    ),
    "envelope": (FULL, {"format": "envelope", "rangeDeletes": "skip"}),
    "envelope, postimages": (POSTIMAGES, {"format": "envelope", "rangeDeletes": "skip"}),
}


@pytest.mark.slow
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9), count=st.integers(1, 12), way=st.sampled_from(list(WAYS)))
def test_good_rows_are_whole_and_bad_ones_counted(
    execute: Execute, rows: Rows, seed: int, count: int, way: str
) -> None:
    """`skip` leaves out exactly the bad rows, and `quarantine` leaves out exactly the bad cells.

    The expected rows come from a read that accepts all values: decimals as text, times as ms.
    `quarantine` marks each row from which it leaves out a cell.
    """
    images, options = WAYS[way]
    execute(TABLE + images, f"ALTER TABLE {{t}} WITH cdc = {images}")
    before = SystemClock().now()
    execute(*statements(seed, count))
    options = {**options, "startingTimestamp": format_timestamp(before)}
    columns = options.get("columns", "s,d,l,ms").split(",")
    has_times = "columns" not in options
    truth = rows(**{**options, "columns": ",".join(columns)})
    expected = in_order(converted(row, has_times=has_times) for row in truth)

    whole = in_order(rows(**options, **FITTING, onBadRecord="quarantine"))
    marks = [row.pop("_bad_record") for row in whole]
    for row, good, mark in zip(whole, expected, marks, strict=True):
        is_bad = any(cell is BAD for cell in leaves(good))
        assert (mark is not None) == is_bad, (row, mark)
        assert plain(row) == without_bad(good)
        if mark is not None:
            assert all(mark["columns"])
            record = json.loads(mark["record"])
            assert all(name in log_row for log_row in record for name in ("cdc$time", "pk"))
            assert all(any(name in log_row for log_row in record) for name in mark["columns"])

    kept = in_order(rows(**options, **FITTING, onBadRecord="skip"))
    good_rows = [row for row in expected if not any(cell is BAD for cell in leaves(row))]
    assert [plain(row) for row in kept] == good_rows


def statements(seed: int, count: int) -> list[str]:
    """Return random writes, some of which contain values that cannot be converted."""
    draw = random.Random(seed)
    return [statement(draw) for _ in range(count)]


def statement(draw: random.Random) -> str:
    """Draw one record of the log: a write, or a batch of writes to one partition."""
    pk = draw.randrange(2)
    if draw.random() < 0.2:
        several = [write(draw, pk) for _ in range(draw.randrange(2, 5))]
        return f"BEGIN BATCH {' '.join(several)} APPLY BATCH"
    return write(draw, pk)


def write(draw: random.Random, pk: int) -> str:
    """Draw a write to a partition."""
    key, number, other = draw.choice(KEYS), draw.choice(NUMBERS), draw.choice(NUMBERS)
    millis = draw.choice(TIMES)
    elements = ", ".join(n for n in draw.choices(NUMBERS, k=2) if n != "null")
    row = f"pk = {pk} AND k = {key}"
    values = f"{pk}, {key}, {number}, {millis}, {millis}"
    return draw.choice(
        [
            f"INSERT INTO {{t}} (pk, k, d, at, ms) VALUES ({values});",
            f"UPDATE {{t}} SET d = {number} WHERE {row};",
            f"UPDATE {{t}} SET at = {millis}, ms = {millis} WHERE {row};",
            f"UPDATE {{t}} SET l = [{elements}], d = {other} WHERE {row};",
            f"UPDATE {{t}} SET s = {number} WHERE pk = {pk};",
            f"DELETE FROM {{t}} WHERE {row};",
            f"DELETE FROM {{t}} WHERE pk = {pk} AND k > {key};",
            f"DELETE FROM {{t}} WHERE pk = {pk};",
        ]
    )


def converted(row: Row, *, has_times: bool, time: Callable[[int], Any] | None = None) -> Row:
    """Return the expected row, with `BAD` for each value that cannot be converted.

    If `has_times` is set, the column `at` is computed from `ms` by `time`.
    """
    made: Row = {}
    for name, cell in row.items():
        if name in ("before", "after", "key") and cell is not None:
            made[name] = converted(cell, has_times=has_times, time=int)
        elif name == "_range" and cell is not None:
            made[name] = {
                **cell,
                "start": cell["start"] and converted(cell["start"], has_times=False),
            }
            made[name]["end"] = cell["end"] and converted(cell["end"], has_times=False)
        elif name in ("k", "s", "d", "l"):
            made[name] = each(cell, number)
        else:
            made[name] = cell
    if has_times and "ms" in row:
        made["at"] = each(row["ms"], time or moment)
    return made


def each(cell: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert a cell. A collection is `BAD` if an element is `BAD`."""
    match cell:
        case None:
            return None
        case list() | dict():
            values = list(cell.values()) if isinstance(cell, dict) else cell
            made = [each(value, convert) for value in values]
            if BAD in made:
                return BAD
            return dict(zip(cell, made, strict=True)) if isinstance(cell, dict) else made
    return convert(cell)


def number(text: str) -> Any:
    """Return the number as a decimal, or `BAD` if the test's decimal type cannot hold it."""
    try:
        return UNITS.quantize(Decimal(text), Decimal("0.01"))
    except (Inexact, InvalidOperation):
        return BAD


def moment(millis: int) -> Any:
    """Return the time, or `BAD` if its microseconds exceed 64 bits."""
    if abs(millis) * 1_000 >= 1 << 63:
        return BAD
    return EPOCH + timedelta(milliseconds=millis)


def leaves(cell: Any) -> list[Any]:
    """Return all cells of a row, including nested ones."""
    match cell:
        case dict():
            return [leaf for part in cell.values() for leaf in leaves(part)]
        case list():
            return [leaf for part in cell for leaf in leaves(part)]
    return [cell]


def without_bad(cell: Any) -> Any:
    """Return the row with null for each bad cell."""
    match cell:
        case dict():
            return {name: without_bad(part) for name, part in cell.items()}
        case _:
            return None if cell is BAD else cell


def in_order(rows: Any) -> list[Row]:
    """Return rows in order of the writes, without the times of the read."""
    found = [{name: row[name] for name in row if not name.startswith("ts_")} for row in rows]
    return sorted(found, key=place)


def place(row: Row) -> tuple[Any, ...]:
    """Return the sort key of a row in any format."""
    if (source := row.get("source")) is not None:
        return (source["sequence"],)
    if "cdc$time" in row:
        return row["_commit_timestamp"], row["cdc$time"], row["cdc$batch_seq_no"]
    return row["_commit_version"], row["_sequence"]


def plain(row: Row) -> Row:
    """Return the row without values that depend on whether the column `at` is read."""
    kept = {name: cell for name, cell in row.items() if name != "cdc$deleted_at"}
    for name in ("_modified_columns", "_nulled_columns"):
        if kept.get(name) is not None:
            kept[name] = [column for column in kept[name] if column != "at"]
    return kept


def test_a_bad_row_ends_the_query_by_default(execute: Execute, rows: Rows) -> None:
    """The error names the option that lets the query continue."""
    execute(
        TABLE + FULL,
        f"INSERT INTO {{t}} (pk, k, d, at) VALUES (1, 1, 1e10, {TIMES[-1]})",
    )
    with pytest.raises(ColumnDecodeError, match=r"column at .*, or onBadRecord$"):
        rows()
    with pytest.raises(ConfigurationError, match=r"^decimalType is .*onBadRecord"):
        rows(**FITTING, columns="d")


@pytest.mark.parametrize("policy", ["skip", "quarantine"])
def test_bad_rows_are_logged_without_their_values(
    execute: Execute, rows: Rows, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    """The event of a skipped row contains its key, time and reason, but no other values.

    Another event contains the number of skipped or quarantined rows.
    """
    execute(
        TABLE + POSTIMAGES,
        "INSERT INTO {t} (pk, k, d) VALUES (7, 1, 31415926535)",
        "INSERT INTO {t} (pk, k, d) VALUES (7, 1, 1)",
        "INSERT INTO {t} (pk, k, d) VALUES (7, 27182818, 1)",
    )
    found = rows(format="changes", **FITTING, onBadRecord=policy)
    assert len(found) == (1 if policy == "skip" else 3)
    assert f"event='bad_records_{'skipped' if policy == 'skip' else 'quarantined'}'" in caplog.text
    assert "count=2" in caplog.text
    assert "31415926535" not in caplog.text
    assert caplog.text.count("event='bad_record'") == (2 if policy == "skip" else 0)
    if policy == "skip":
        assert """key='{"pk": 7, "k": "27182818"}'""" in caplog.text
        assert "column d holds a number with more digits than decimal(6, 2)" in caplog.text


def test_a_quarantined_record(execute: Execute, rows: Rows) -> None:
    """The record of a quarantined row contains its log rows, including values of bad cells."""
    at = TIMES[-2]
    execute(
        TABLE + POSTIMAGES,
        f"INSERT INTO {{t}} (pk, k, d, l, at) VALUES (1, 2, 1e10, [0.5, 9e9], {at})",
    )
    (row,) = rows(format="changes", **FITTING, onBadRecord="quarantine")
    assert (row["pk"], row["k"], row["d"], row["l"], row["at"]) == (1, 2, None, None, None)
    assert row["_change_type"] == "insert"
    mark = row["_bad_record"]
    assert mark["columns"] == ["at", "d", "l"]
    assert "column at holds a timestamp outside the years" in mark["reason"]
    delta, postimage = json.loads(mark["record"])
    for record in (delta, postimage):
        assert (record["pk"], record["k"], record["d"]) == (1, "2.00", "1E+10")
        assert list(json.loads(record["l"]).values()) == ["0.5", "9E+9"]
        assert int(record["at"]) == int(at)


def test_a_change_without_its_postimage(execute: Execute, rows: Rows) -> None:
    """A change made before postimages were enabled is a bad record. Later changes are read."""
    execute(
        TABLE + DELTAS,
        "INSERT INTO {t} (pk, k, d) VALUES (1, 1, 1)",
        f"ALTER TABLE {{t}} WITH cdc = {POSTIMAGES}",
        "INSERT INTO {t} (pk, k, d) VALUES (1, 2, 2)",
    )
    with pytest.raises(SchemaError, match="has no postimage"):
        rows(format="changes")
    for shape in ("changes", "envelope"):
        assert len(rows(format=shape, onBadRecord="skip")) == 1
        old, new = in_order(rows(format=shape, onBadRecord="quarantine"))
        assert new["_bad_record"] is None
        assert old["_bad_record"]["reason"] == "the log has no postimage of this change"
        (record,) = json.loads(old["_bad_record"]["record"])
        assert (record["k"], record["d"]) == ("1", "1")


def test_a_data_frame_without_the_column_is_refused(
    execute: Execute, options: dict[str, str]
) -> None:
    """Without the column `_bad_record`, bad rows would look like good ones, so the read fails."""
    execute(TABLE + FULL, "INSERT INTO {t} (pk, k, d) VALUES (1, 1, 1)")
    parsed = SourceOptions.parse({**options, "format": "changes", "onBadRecord": "quarantine"})
    reader = BatchReader(parsed, schema_of(parsed), ("pk", "d"))
    with pytest.raises(ConfigurationError, match=r"^onBadRecord is .*lacks the column _bad_record"):
        [batch for part in reader.partitions() for batch in reader.read(part)]


@pytest.mark.slow
def test_a_snapshot(execute: Execute, rows: Rows) -> None:
    """Bad rows of a snapshot are skipped or quarantined too.

    A bad static value affects only the static row of its partition.
    """
    execute(
        TABLE + FULL,
        "INSERT INTO {t} (pk, k, d, s) VALUES (1, 1, 1, 1e10)",
        "INSERT INTO {t} (pk, k, d) VALUES (1, 2, 1e10)",
        "INSERT INTO {t} (pk, k, d) VALUES (1, 99999, 3)",
        "INSERT INTO {t} (pk, s) VALUES (2, 5)",
        f"INSERT INTO {{t}} (pk, k, at, s) VALUES (3, 1, {TIMES[-1]}, 7)",
    )
    options = {"format": "changes", "snapshot": "initial", "endingTimestamp": "now", **FITTING}
    options["confidenceWindow"] = "0s"
    kept = [(row["pk"], row["k"], row["s"]) for row in rows(**options, onBadRecord="skip")]
    assert sorted(kept, key=repr) == [(1, 1, None), (2, None, 5), (3, None, 7)]
    marked = [
        (row["pk"], row["k"], row["_bad_record"]["columns"])
        for row in rows(**options, onBadRecord="quarantine")
        if row["_bad_record"]
    ]
    expected = [(1, 2, ["d"]), (1, None, ["k"]), (1, None, ["s"]), (3, 1, ["at"])]
    assert sorted(marked, key=repr) == expected


WRITES = (
    "INSERT INTO {t} (pk, k, d) VALUES (1, 1, 1)",
    "INSERT INTO {t} (pk, k, d) VALUES (1, 2, 1e10)",
    "UPDATE {t} SET d = 2e10 WHERE pk = 1 AND k = 1",
    "INSERT INTO {t} (pk, k, d) VALUES (1, 3, 1e10)",
    "DELETE FROM {t} WHERE pk = 1 AND k = 3",
    "UPDATE {t} SET d = 2 WHERE pk = 1 AND k = 2",
    "INSERT INTO {t} (pk, k, d) VALUES (1, 99999, 3)",
)
"""Three rows are good: the first INSERT, the preimage of the first UPDATE, and the row that the
second UPDATE made. The other six are bad: two inserts, an update, a delete, a preimage, and the
last INSERT."""


@pytest.mark.slow
@pytest.mark.spark
def test_folded(execute: Execute, load: Load) -> None:
    """Folding applies a bad delete if its key can be converted, and ignores other bad rows."""
    execute(TABLE + FULL, *WRITES)
    changes = load(format="changes", **FITTING, onBadRecord="quarantine", columns="d")
    assert changes.schema["_bad_record"].dataType.simpleString() == (
        "struct<reason:string,columns:array<string>,record:string>"
    )
    assert changes.where("_bad_record IS NULL").count() == 3
    assert changes.where("array_contains(_bad_record.columns, 'k')").count() == 1
    given = {**FITTING, "onBadRecord": "quarantine", "columns": "d"}
    changes = load(format="changes", includeDelta="true", **given)
    assert sorted((row.k, row.d) for row in fold(changes).collect()) == [(1, 1), (2, 2)]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(("policy", "count"), [("skip", 3), ("quarantine", 9)])
def test_a_repeated_micro_batch_has_the_same_rows(
    execute: Execute, load: Load, tmp_path: Path, policy: str, count: int
) -> None:
    """A micro-batch that is repeated after a failure contains the same rows."""
    execute(TABLE + FULL, *WRITES)
    seen: list[list[str]] = []

    def take(frame: DataFrame, _number: int) -> None:
        seen.append(sorted(map(repr, frame.collect())))
        if len(seen) == 1:
            raise OSError("the disk is full")

    stream = load(
        stream=True, format="changes", **FITTING, onBadRecord=policy, confidenceWindow="0s"
    )
    writer = (
        stream.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        writer.start().awaitTermination(60)
    writer.start().awaitTermination(60)
    first, *rest = seen
    assert rest[0] == first
    assert len(set().union(*rest)) == sum(map(len, rest)) == count
