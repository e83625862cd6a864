"""Tokens of partition keys of all types, and errors for invalid keys."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from cdc_reader.cluster import Connection, SchemaSource
from cdc_reader.cluster.values import murmur3, token_of
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import ConfigurationError

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

KEY: Mapping[str, object] = {
    "a": "text", "b": 1, "c": -(2**40), "d": Decimal("1.50"), "e": 2.5, "f": True,
    "g": uuid.UUID(int=7), "h": b"\x00\xff", "i": "127.0.0.1", "j": dt.date(2026, 1, 2),
    "k": dt.datetime(2026, 1, 2, 3, 4, 5, 6_000, dt.UTC), "l": 2**70, "m": 5, "n": -3,
    "o": [1, 2], "p": {"x"}, "q": {1: "y"}, "r": (1, "z"), "s": (3, "w"),
}  # fmt: skip
TYPES = [
    *"text int bigint decimal double boolean uuid blob inet".split(),
    *"date timestamp varint smallint tinyint".split(),
    "frozen<list<int>>",
    "frozen<set<text>>",
    "frozen<map<int, text>>",
    "frozen<tuple<int, text>>",
    "frozen<pair>",
]


def test_tokens_are_the_server_s(
    scylla: Scylla, keyspace: str, connection: ConnectionConfig
) -> None:
    """The computed token of a key with a column of each type equals the server's token."""
    session = scylla.session
    session.execute(f"CREATE TYPE {keyspace}.pair (x int, y text)")
    columns = ", ".join(f"{name} {text}" for name, text in zip(KEY, TYPES, strict=True))
    session.execute(f"CREATE TABLE {keyspace}.t ({columns}, PRIMARY KEY (({', '.join(KEY)})))")
    session.execute(f"ALTER TABLE {keyspace}.t WITH cdc = {{'enabled': true}}")
    marks = ", ".join("?" * len(KEY))
    insert = session.prepare(f"INSERT INTO {keyspace}.t ({', '.join(KEY)}) VALUES ({marks})")
    session.execute(insert, tuple(KEY.values()))
    row = session.execute(f"SELECT token({', '.join(KEY)}) FROM {keyspace}.t").one()
    opened = Connection(connection, ReadConfig())
    table = SchemaSource(opened).log_schema(TableName(keyspace, "t")).base
    opened.close()
    assert token_of(table, dict(reversed(list(KEY.items())))) == row[0]
    with pytest.raises(ConfigurationError, match=r"^key is 'a, b': give the partition key of"):
        token_of(table, {"a": "x", "b": 1})
    with pytest.raises(
        ConfigurationError, match=r"^key column b is 'one': give a value of type int"
    ):
        token_of(table, {**KEY, "b": "one"})


def test_no_key_has_the_least_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key has the smallest token. A hash of that value becomes the greatest token."""
    monkeypatch.setattr("cassandra.metadata.Murmur3Token.hash_fn", lambda _: -(2**63))
    assert murmur3(b"") == 2**63 - 1
