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
IMAGES = "{'enabled': true, 'preimage': 'full', 'postimage': true}"
TABLE = "CREATE TABLE {t} (pk int, ck int, v int, w text, PRIMARY KEY (pk, ck)) WITH cdc = "
HISTORY = (
    "INSERT INTO {t} (pk, ck, v, w) VALUES (1, 2, 3, 'a')",
    "UPDATE {t} SET v = null WHERE pk = 1 AND ck = 2",
    "DELETE FROM {t} WHERE pk = 1 AND ck = 2",
)


def validator(*columns: str) -> Draft202012Validator:
    """Return a validator for the packaged schema that requires these columns in each row."""
    path = files("cdc_reader.changes.frames") / "envelope.schema.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    schema["$defs"]["row"]["required"] = columns
    return Draft202012Validator(schema)


def test_with_images(execute: Execute, rows: Rows) -> None:
    """`before` and `after` are whole rows, and `key` is the key alone."""
    execute(TABLE + IMAGES, *HISTORY)
    found = rows(format="envelope")
    found.sort(key=lambda row: row["source"]["sequence"])
    first, second = ({"pk": 1, "ck": 2, "v": v, "w": "a"} for v in (3, None))
    assert [(row["op"], row["before"], row["after"]) for row in found] == [
        ("c", None, first),
        ("u", first, second),
        ("d", second, None),
    ]
    for row in found:
        assert row["key"] == {"pk": 1, "ck": 2}
        assert row["source"]["ts_ms"] <= row["ts_ms"] + 5_000


@pytest.mark.parametrize(
    ("given", "error", "expected"),
    [
        ({"rangeDeletes": "emit"}, ConfigurationError, "cannot hold the bounds"),
        ({"includeDelta": "true"}, ConfigurationError, "whole rows: leave it out"),
        ({}, UnsupportedTableError, "ALTER TABLE .*'postimage': 'true'"),
        ({"preimages": "require"}, UnsupportedTableError, "'preimage': 'full'"),
    ],
)
def test_refused(
    execute: Execute, rows: Rows, given: dict[str, str], error: type[Exception], expected: str
) -> None:
    """Options and tables that do not suit the format raise an error that states the remedy."""
    execute(TABLE + "{'enabled': true}")
    with pytest.raises(error, match=expected):
        rows(format="envelope", **given)


@pytest.mark.slow
@pytest.mark.spark
def test_as_json(execute: Execute, load: Callable[..., DataFrame]) -> None:
    """Spark writes envelopes as JSON that conforms to the schema, with Kafka Connect's types."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, at timestamp, m map<text, int>) WITH cdc = "
        + IMAGES,
        "INSERT INTO {t} (pk, at, m) VALUES (1, '2024-06-10T12:34:56.789Z', {'a': 1})",
        "UPDATE {t} SET m = null WHERE pk = 1",
        "DELETE FROM {t} WHERE pk = 1",
    )
    frame = load(format="envelope").selectExpr(
        "to_json(struct(*), map('ignoreNullFields', 'false')) AS document"
    )
    documents = [json.loads(found["document"]) for found in frame.collect()]
    check = validator("pk", "at", "m")
    for document in documents:
        check.validate(document)
    by_op = {document["op"]: document for document in documents}
    assert by_op.keys() == {"c", "u", "d"}
    row = {"pk": 1, "at": 1718022896789, "m": [{"key": "a", "value": 1}]}
    assert by_op["c"]["after"] == by_op["u"]["before"] == row
    assert by_op["d"]["before"] == {**row, "m": None}
    documents[0]["source"]["ts_us"] = "soon"
    assert not check.is_valid(documents[0])
