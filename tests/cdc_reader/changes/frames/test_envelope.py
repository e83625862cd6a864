"""Envelopes, compared with the messages that the Kafka connector documents."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_reader import CdcReader, ChangeFormat, ConnectionConfig
from cdc_reader.errors import UnsupportedTableError
from cdc_reader.testing import EmbeddedScylla
from tests.cdc_reader.conftest import Execute

DOCUMENTED = json.loads(
    (Path(__file__).parents[3] / "data" / "connector-messages.json").read_text()
)
FULL = "WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}"
TABLE = f"CREATE TABLE {{t}} (id int PRIMARY KEY, name text) {FULL}"
CONNECT = {
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.binary(): "bytes",
}


def connect_type(kind: pa.DataType) -> str:
    """Return the name of the Kafka Connect type for an Arrow type."""
    if pa.types.is_struct(kind):
        return "struct"
    return "array" if pa.types.is_list(kind) else CONNECT[kind]


def fields(kind: pa.Schema | pa.StructType) -> dict[str, str]:
    """Return the types of a struct's fields."""
    return {field.name: connect_type(field.type) for field in kind}


def as_json(value: Any) -> Any:
    """Return a value as Kafka Connect's JSON converter writes it."""
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def messages(reader: CdcReader, **options: Any) -> list[dict[str, Any]]:
    """Return the messages in write order, without their sources and times."""
    found = reader.change_batches(format=ChangeFormat("envelope", **options)).read_all().to_pylist()
    return [
        {name: as_json(row[name]) for name in ("op", "before", "after", "key")} for row in found
    ]


@pytest.fixture
def reader(connection: ConnectionConfig, keyspace: str) -> Iterator[CdcReader]:
    """A reader of the table."""
    with CdcReader(connection, f"{keyspace}.t") as reader:
        yield reader


def test_the_documented_messages(reader: CdcReader, execute: Execute) -> None:
    """Each message contains the key and the whole row before and after the change."""
    execute(TABLE, *DOCUMENTED["statements"])
    expected = DOCUMENTED["messages"]
    assert messages(reader) == messages(reader, preimages="require") == expected
    no_rows_before = [{**message, "before": None} for message in expected]
    assert messages(reader, preimages="none") == no_rows_before


def test_partial_preimages_are_not_shown(reader: CdcReader, execute: Execute) -> None:
    """`before` is null if the log has only the changed columns of the row before the change."""
    partial = TABLE.replace("'full'", "true")
    execute(partial, *DOCUMENTED["statements"])
    expected = [{**message, "before": None} for message in DOCUMENTED["messages"]]
    assert messages(reader) == expected


def test_static_columns(reader: CdcReader, execute: Execute) -> None:
    """An envelope of a static row contains only static columns. Other envelopes contain none."""
    execute(
        f"CREATE TABLE {{t}} (pk int, ck int, s int static, v int, PRIMARY KEY (pk, ck)) {FULL}",
        "INSERT INTO {t} (pk, ck, s) VALUES (1, 2, 3)",
    )
    static, other = {"pk": 1, "ck": None}, {"pk": 1, "ck": 2}
    assert [(each["key"], each["after"]) for each in messages(reader)] == [
        (static, {**static, "s": 3, "v": None}),
        (other, {**other, "s": None, "v": None}),
    ]


def test_the_fields(reader: CdcReader, execute: Execute) -> None:
    """The envelope, source and transaction have exactly the documented fields."""
    execute(TABLE)
    schema = reader.change_batches(format="envelope").schema
    assert fields(schema) == DOCUMENTED["envelope"]
    assert fields(schema.field("source").type) == DOCUMENTED["source_block"]
    assert fields(schema.field("transaction").type) == DOCUMENTED["transaction"]


def test_the_documented_values(reader: CdcReader, execute: Execute, keyspace: str) -> None:
    """Each CQL type has the documented Connect type and value, in inserts and in updates."""
    columns = {f"c{number}": each for number, each in enumerate(DOCUMENTED["columns"])}
    execute(*[statement.replace("{ks}", keyspace) for statement in DOCUMENTED["types"]])
    declared = "".join(f"{name} {each['cql']}, " for name, each in columns.items())
    names = "".join(f", {name}" for name in columns)
    first, second = ([each["values"][n] for each in columns.values()] for n in (0, 1))
    assigned = ", ".join(f"{name} = {cql}" for name, (cql, _) in zip(columns, second, strict=True))
    execute(
        f"CREATE TABLE {{t}} (id int, {declared} PRIMARY KEY (id)) {FULL}",
        f"INSERT INTO {{t}} (id{names}) VALUES (1, {', '.join(cql for cql, _ in first)})",
        f"UPDATE {{t}} SET {assigned} WHERE id = 1",
    )
    schema = reader.change_batches(format="envelope").schema
    types = {name: each["type"] for name, each in columns.items()}
    assert fields(schema.field("after").type) == {"id": "int32", **types}
    inserted, updated = messages(reader)
    for row, values in (
        (inserted["after"], first),
        (updated["before"], first),
        (updated["after"], second),
    ):
        expected = {name: value for name, (_, value) in zip(columns, values, strict=True)}
        for name, each in columns.items():
            if each["cql"] == "float":  # JSON shows the digits of the 32-bit number
                row[name] = float(str(np.float32(row[name])))
        assert row == {"id": 1, **expected}


def test_the_source(reader: CdcReader, execute: Execute, keyspace: str) -> None:
    """`ts_us`, `ts_ms` and `ts_ns` are the same time, and `sequence` orders the changes."""
    execute(TABLE, *DOCUMENTED["statements"])
    found = reader.change_batches(format="envelope").read_all().to_pylist()
    sources = [row["source"] for row in found]
    assert sorted(source["sequence"] for source in sources) == [s["sequence"] for s in sources]
    for source in sources:
        assert source["ts_us"] // 1_000 == source["ts_ms"]
        assert source["ts_us"] * 1_000 == source["ts_ns"]
        assert (source["db"], source["keyspace_name"]) == (keyspace, keyspace)
        version, sequence = json.loads(source["sequence"])
        assert len(version) == 32
        assert int(sequence) >= 0


def test_a_snapshot(reader: CdcReader, execute: Execute) -> None:
    """A snapshot delivers each existing row as a read event (`op` is ``r``)."""
    execute(TABLE, *DOCUMENTED["statements"][:1])
    batches = reader.snapshot().change_batches(format="envelope")
    (row,) = batches.read_all().to_pylist()
    assert (row["op"], row["before"], row["key"]) == ("r", None, {"id": 1})
    assert (row["after"], row["source"]["snapshot"]) == ({"id": 1, "name": "first"}, "true")


@pytest.mark.parametrize(
    ("cdc", "preimages", "images"),
    [
        ("'delta': 'full'", "auto", "'preimage': 'false', 'postimage': 'true'"),
        ("'preimage': 'full'", "auto", "'preimage': 'full', 'postimage': 'true'"),
        ("'postimage': true", "require", "'preimage': 'full', 'postimage': 'true'"),
        ("'delta': 'full'", "require", "'preimage': 'full', 'postimage': 'true'"),
    ],
)
def test_a_log_without_an_image_is_rejected(
    reader: CdcReader, execute: Execute, cdc: str, preimages: Any, images: str
) -> None:
    """The error for a log without an image contains the statement that enables all images."""
    execute(f"CREATE TABLE {{t}} (id int PRIMARY KEY) WITH cdc = {{'enabled': true, {cdc}}}")
    with pytest.raises(UnsupportedTableError, match=rf"ALTER TABLE .* WITH cdc = .*{images}"):
        reader.change_batches(format=ChangeFormat("envelope", preimages=preimages))


@pytest.mark.parametrize(
    ("version", "before"), [("2025.4", None), ("2026.1", {"id": 1, "name": "Ann"})]
)
def test_a_delete_without_a_preimage_names_its_row(
    version: str, before: dict[str, Any] | None
) -> None:
    """Before 2026.1, no preimage is logged for a delete without clustering columns."""
    with EmbeddedScylla(version=version) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        server.execute(TABLE.replace("{t}", "ks.t"))
        server.execute("INSERT INTO ks.t (id, name) VALUES (1, 'Ann')")
        server.execute("DELETE FROM ks.t WHERE id = 1")
        with CdcReader(server.contact_point, "ks.t") as reader:
            _, deleted = messages(reader, preimages="require")
            wanted = ChangeFormat(preimages="require")
            *_, change = reader.change_batches(format=wanted).read_all().to_pylist()
    assert deleted == {"op": "d", "before": before, "after": None, "key": {"id": 1}}
    assert (change["id"], change["name"]) == (1, before and before["name"])
