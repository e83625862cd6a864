"""The format ``envelope``: the rows that consumers of the Debezium connector expect."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # ships no types

from cdc_reader.errors import ConfigurationError, UnsupportedTableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows = Callable[..., list[dict[str, Any]]]
Execute = Callable[..., None]
TABLE = "CREATE TABLE {t} (pk int, ck int, v int, w text, PRIMARY KEY (pk, ck)) WITH cdc = "
HISTORY = (
    "INSERT INTO {t} (pk, ck, v, w) VALUES (1, 2, 3, 'a')",
    "UPDATE {t} SET v = null WHERE pk = 1 AND ck = 2",
    "DELETE FROM {t} WHERE pk = 1 AND ck = 2",
)


def validator(keys: tuple[str, ...], columns: tuple[str, ...]) -> Draft202012Validator:
    """Return a validator for the packaged schema that requires these columns in each row."""
    path = files("cdc_reader.changes.frames") / "envelope.schema.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    row = schema["$defs"]["row"]
    row["required"] = [*keys, *columns]
    row["properties"] = {column: {"$ref": "#/$defs/cell"} for column in columns}
    return Draft202012Validator(schema)


def envelopes(rows: Rows, **options: str) -> list[tuple[Any, ...]]:
    """Return `op`, `before` and `after` of each envelope, in commit order."""
    found = rows(format="envelope", **options)
    found.sort(key=lambda row: (row["source"]["commit_version"], row["source"]["sequence"]))
    return [(row["op"], row["before"], row["after"]) for row in found]


def row(v: Any, w: Any) -> dict[str, Any]:
    """Return the expected row with these cells."""
    return {"pk": 1, "ck": 2, "v": v, "w": w}


def cell(value: Any) -> dict[str, Any]:
    """Return an envelope's cell for a known value."""
    return {"value": value}


def test_with_images(execute: Execute, rows: Rows) -> None:
    """`before` and `after` are complete rows. A null value differs from an unknown one."""
    execute(TABLE + "{'enabled': true, 'preimage': 'full', 'postimage': true}", *HISTORY)
    first, second = row(cell(3), cell("a")), row(cell(None), cell("a"))
    assert envelopes(rows) == [("c", None, first), ("u", first, second), ("d", second, None)]
    assert envelopes(rows, preimages="none") == [
        ("c", None, first),
        ("u", None, second),
        ("d", row(None, None), None),
    ]


def test_with_partial_preimages(execute: Execute, rows: Rows) -> None:
    """An update's preimage contains only the modified columns. A delete's preimage is complete."""
    execute(TABLE + "{'enabled': true, 'preimage': true, 'postimage': true}", *HISTORY)
    (_, created, updated), (_, _, last), (_, deleted, _) = [
        (op, before, after) for op, before, after in envelopes(rows)
    ]
    assert (created, updated) == (None, row(cell(3), cell("a")))
    assert last == deleted == row(cell(None), cell("a"))
    assert envelopes(rows)[1][1] == row(cell(3), None)


def test_with_deltas_alone(execute: Execute, rows: Rows) -> None:
    """Without images, an envelope contains the cells that the change wrote."""
    execute(TABLE + "{'enabled': true}", *HISTORY)
    assert envelopes(rows) == [
        ("c", None, row(cell(3), cell("a"))),
        ("u", None, row(cell(None), None)),
        ("d", row(None, None), None),
    ]


def test_static_columns(execute: Execute, rows: Rows) -> None:
    """An envelope of a static row contains only static columns. Other envelopes contain none."""
    execute(
        "CREATE TABLE {t} (pk int, ck int, s int static, v int, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'postimage': true}",
        "INSERT INTO {t} (pk, ck, s) VALUES (1, 2, 3)",
    )
    assert [after for _, _, after in envelopes(rows)] == [
        {"pk": 1, "ck": None, "s": cell(3), "v": None},
        {"pk": 1, "ck": 2, "s": None, "v": cell(None)},
    ]


@pytest.mark.parametrize(
    ("given", "error", "expected"),
    [
        ({"rangeDeletes": "emit"}, ConfigurationError, "cannot hold the bounds"),
        ({"includeDelta": "true"}, ConfigurationError, "from null: leave it out"),
        ({"preimages": "require"}, UnsupportedTableError, "'preimage': 'full'"),
    ],
)
def test_refused(
    execute: Execute, rows: Rows, given: dict[str, str], error: type[Exception], expected: str
) -> None:
    """Options and tables that do not suit the format raise an error that states the remedy."""
    execute(TABLE + "{'enabled': true}")
    with pytest.raises(error, match=expected):
        envelopes(rows, **given)


@pytest.mark.slow
@pytest.mark.spark
def test_as_json(execute: Execute, load: Callable[..., DataFrame]) -> None:
    """Envelopes that Spark converts to JSON conform to the packaged schema."""
    execute(TABLE + "{'enabled': true, 'preimage': 'full', 'postimage': true}", *HISTORY)
    frame = load(format="envelope").selectExpr(
        "to_json(struct(*), map('ignoreNullFields', 'false')) AS document"
    )
    documents = [json.loads(found["document"]) for found in frame.collect()]
    check = validator(("pk", "ck"), ("v", "w"))
    for document in documents:
        check.validate(document)
    assert sorted(document["op"] for document in documents) == ["c", "d", "u"]
    documents[0]["source"]["ts_us"] = "soon"
    assert not check.is_valid(documents[0])


def test_projected(execute: Execute, rows: Rows) -> None:
    """The time of a change is the time of the write, in µs and in ms."""
    execute(TABLE + "{'enabled': true}", HISTORY[0])
    (found,) = rows(format="envelope")
    source = found["source"]
    assert source["ts_us"] // 1_000 == source["ts_ms"] <= found["ts_ms"] + 5_000
    assert (source["keyspace_name"], source["table_name"]) != ("", "")


@pytest.mark.spark
def test_the_advanced_output_as_json(execute: Execute, load: Callable[..., DataFrame]) -> None:
    """In JSON, the advanced output contains plain values of the types that Kafka Connect uses."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, at timestamp, m map<text, int>) "
        "WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}",
        "INSERT INTO {t} (pk, at, m) VALUES (1, '2024-06-10T12:34:56.789Z', {'a': 1})",
    )
    frame = load(
        format="envelope",
        envelopeOutput="advanced",
        includeAfter="full",
        keyPlacement="payload-key",
    ).selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) AS document")
    (document,) = [json.loads(found["document"]) for found in frame.collect()]
    assert document["key"] == {"pk": 1}
    assert document["after"] == {"at": 1718022896789, "m": [{"key": "a", "value": 1}]}
    assert (document["op"], document["before"], document["transaction"]) == ("c", None, None)
    assert document["source"]["ts_us"] * 1_000 == document["source"]["ts_ns"]
