"""Computes tokens: Murmur3 for tables, the first half of the stream id for CDC logs."""

from __future__ import annotations

from cassandra.metadata import Murmur3Token

MIN_TOKEN = -(2**63)
MAX_TOKEN = 2**63 - 1

CDC_PARTITIONER = "com.scylladb.dht.CDCPartitioner"


def token_of(partitioner: str, key: tuple[bytes, ...]) -> int:
    """Return the token of a partition key given as its serialized values."""
    if partitioner == CDC_PARTITIONER:
        return cdc_token(key[0])
    token: int = Murmur3Token.hash_fn(serialise_key(key))
    return MAX_TOKEN if token == MIN_TOKEN else token


def cdc_token(stream_id: bytes) -> int:
    """Return a stream id's token, which is its first 8 bytes.

    An id whose length is not 16 bytes has the smallest token.
    """
    if len(stream_id) != 16:
        return MIN_TOKEN
    return int.from_bytes(stream_id[:8], "big", signed=True)


def serialise_key(values: tuple[bytes, ...]) -> bytes:
    """Serialize a partition key.

    A single value is unchanged. Each of several values becomes a 2-byte length, the value and 0x00.
    """
    if len(values) == 1:
        return values[0]
    return b"".join(len(v).to_bytes(2, "big") + v + b"\x00" for v in values)
