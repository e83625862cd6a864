"""`AdvancedEnvelope` messages, compared with those that the Kafka connector documents."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_reader import AdvancedEnvelope, CdcReader, ConnectionConfig
from cdc_reader.errors import ConfigurationError, UnsupportedTableError
from tests.cdc_reader.conftest import Execute

DOCUMENTED = json.loads(
    (Path(__file__).parents[3] / "data" / "connector-messages.json").read_text()
)
FULL = "WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}"
EVERYWHERE = ("payload-before", "payload-after", "payload-key")
IMAGES = AdvancedEnvelope(before="full", after="full", key_placement=EVERYWHERE)
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


def messages(reader: CdcReader, envelope: AdvancedEnvelope) -> list[dict[str, Any]]:
    """Return the messages in write order, without their sources and times."""
    found = reader.change_batches(format="envelope", envelope=envelope).read_all().to_pylist()
    kept = ("op", "before", "after", "key")
    return [{name: as_json(row[name]) for name in kept if name in row} for row in found]


@pytest.fixture
def reader(connection: ConnectionConfig, keyspace: str) -> Iterator[CdcReader]:
    """A reader of the table."""
    with CdcReader(connection, f"{keyspace}.t") as reader:
        yield reader


@pytest.mark.parametrize(
    ("name", "envelope"),
    [
        ("all placements", IMAGES),
        ("no placement", AdvancedEnvelope(before="full", after="full", key_placement=())),
        ("none", AdvancedEnvelope(key_placement=EVERYWHERE)),
    ],
)
def test_the_documented_messages(
    reader: CdcReader, execute: Execute, name: str, envelope: AdvancedEnvelope
) -> None:
    """Each message contains the requested images, and the key in the requested places."""
    execute(f"CREATE TABLE {{t}} (id int PRIMARY KEY, name text) {FULL}", *DOCUMENTED["statements"])
    assert messages(reader, envelope) == DOCUMENTED["messages"][name]


def test_only_updated_columns(reader: CdcReader, execute: Execute) -> None:
    """In mode ``only-updated``, an update's images contain only the changed columns.

    Inserts and deletes contain the whole row. The modes of `before` and `after` are independent.
    """
    documented = DOCUMENTED["only_updated"]
    execute(f"{documented['table']} {FULL}", *documented["statements"])
    both = AdvancedEnvelope(before="only-updated", after="only-updated")
    assert messages(reader, both) == documented["messages"]
    one = messages(reader, AdvancedEnvelope(before="full", after="only-updated"))[1]
    assert one["before"] == documented["full_before"]
    assert one["after"] == documented["messages"][1]["after"]


def test_the_fields(reader: CdcReader, execute: Execute) -> None:
    """The envelope, source and transaction have exactly the documented fields."""
    execute(f"CREATE TABLE {{t}} (id int PRIMARY KEY, name text) {FULL}")
    schema = reader.change_batches(format="envelope", envelope=IMAGES).schema
    assert fields(schema) == DOCUMENTED["envelope"]
    assert fields(schema.field("source").type) == DOCUMENTED["source_block"]
    assert fields(schema.field("transaction").type) == DOCUMENTED["transaction"]
    in_rows = AdvancedEnvelope(key_placement=("payload-before", "payload-after"))
    plain = reader.change_batches(format="envelope", envelope=in_rows).schema
    assert set(DOCUMENTED["envelope"]) - set(fields(plain)) == {"key"}


def test_by_default_each_message_has_the_key(reader: CdcReader, execute: Execute) -> None:
    """By default, every message contains the key, because only the key identifies a deleted row."""
    execute(f"CREATE TABLE {{t}} (id int PRIMARY KEY, name text) {FULL}", *DOCUMENTED["statements"])
    batches = reader.change_batches(format="envelope", envelope=AdvancedEnvelope())
    keys = [row["key"] for row in batches.read_all().to_pylist()]
    assert keys
    assert all(key["id"] is not None for key in keys)


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
    schema = reader.change_batches(format="envelope", envelope=IMAGES).schema
    types = {name: each["type"] for name, each in columns.items()}
    assert fields(schema.field("after").type) == {"id": "int32", **types}
    inserted, updated = messages(reader, IMAGES)
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
    execute(f"CREATE TABLE {{t}} (id int PRIMARY KEY, name text) {FULL}", *DOCUMENTED["statements"])
    found = reader.change_batches(format="envelope", envelope=IMAGES).read_all().to_pylist()
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
    execute(
        f"CREATE TABLE {{t}} (id int PRIMARY KEY, name text) {FULL}", *DOCUMENTED["statements"][:1]
    )
    batches = reader.snapshot().change_batches(format="envelope", envelope=IMAGES)
    (row,) = batches.read_all().to_pylist()
    assert (row["op"], row["before"], row["key"]) == ("r", None, {"id": 1})
    assert (row["after"], row["source"]["snapshot"]) == ({"id": 1, "name": "first"}, "true")


@pytest.mark.parametrize(
    ("cdc", "envelope", "message"),
    [
        ("'postimage': true", AdvancedEnvelope(before="full"), "'preimage': 'full'"),
        ("'preimage': 'full'", AdvancedEnvelope(after="full"), "'postimage': 'true'"),
        ("'postimage': true", AdvancedEnvelope(before="only-updated"), "'preimage': 'full'"),
        (
            "'postimage': true, 'delta': 'keys'",
            AdvancedEnvelope(after="only-updated"),
            "only updated columns in 'after', but the log has keys only.*'delta': 'full'",
        ),
    ],
)
def test_a_log_without_an_image_is_rejected(
    reader: CdcReader, execute: Execute, cdc: str, envelope: AdvancedEnvelope, message: str
) -> None:
    """The error for a log without an image contains the statement that enables the image."""
    execute(f"CREATE TABLE {{t}} (id int PRIMARY KEY) WITH cdc = {{'enabled': true, {cdc}}}")
    with pytest.raises(UnsupportedTableError, match=message):
        reader.change_batches(format="envelope", envelope=envelope)


def test_settings_that_cannot_be_used(reader: CdcReader, execute: Execute) -> None:
    """Each error names the rejected setting and its allowed values."""
    execute(f"CREATE TABLE {{t}} (id int PRIMARY KEY) {FULL}")
    with pytest.raises(
        ConfigurationError, match="before is 'some': give one of none, full, only-updated"
    ):
        AdvancedEnvelope(before="some")
    with pytest.raises(
        ConfigurationError, match="key_placement is 'kafka-key': give one of payload-"
    ):
        AdvancedEnvelope(key_placement=["kafka-key"])
    with pytest.raises(ConfigurationError, match="needs format 'envelope'"):
        reader.change_batches(envelope=IMAGES)
    with pytest.raises(ConfigurationError, match="preimages is 'none'"):
        reader.change_batches(format="envelope", envelope=IMAGES, preimages="none")
