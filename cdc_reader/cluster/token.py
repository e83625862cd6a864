"""Computes the token of a partition key under the server's default partitioner."""

from __future__ import annotations

from collections.abc import Mapping

from cassandra.metadata import Murmur3Token

from cdc_reader.cluster.values import serialise
from cdc_reader.cql.schema import Column, TableSchema
from cdc_reader.errors import ConfigurationError
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN


def token_of(table: TableSchema, key: Mapping[str, object]) -> int:
    """Return the token of a base table's partition; `key` maps columns to values.

    Raises ConfigurationError if `key` has other columns, or if a value has the wrong type.
    """
    columns = table.partition_key
    names = [column.name for column in columns]
    if sorted(key) != sorted(names):
        remedy = f"give the partition key of {table.name}: {', '.join(names)}"
        raise ConfigurationError("key", ", ".join(key), remedy)
    return murmur3(serialised_key([_cell(column, key[column.name]) for column in columns]))


def murmur3(key: bytes) -> int:
    """Return the token of a serialized key; never the smallest token, which starts the ring."""
    token: int = Murmur3Token.hash_fn(key)
    return MAX_TOKEN if token == MIN_TOKEN else token


def serialised_key(cells: list[bytes]) -> bytes:
    """Serialize the cells of a partition key.

    A single cell is serialized as it is. Each of several cells becomes a two-byte length, the cell
    and a zero byte.
    """
    if len(cells) == 1:
        return cells[0]
    return b"".join(len(cell).to_bytes(2, "big") + cell + b"\0" for cell in cells)


def _cell(column: Column, value: object) -> bytes:
    try:
        return serialise(column.type, value)
    except ValueError:
        remedy = f"give a value of type {column.type}"
        raise ConfigurationError(f"key column {column.name}", value, remedy) from None
