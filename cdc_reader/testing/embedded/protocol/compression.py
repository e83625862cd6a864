"""Compresses frame bodies with lz4 or snappy, as the protocol specification requires."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from cdc_reader.testing.embedded.errors import ProtocolError
from cdc_reader.testing.embedded.protocol.frame import MAX_BODY

_SIZE = 4


class Lz4:
    """An lz4 block, preceded by its decompressed size as a big-endian [int]."""

    def compress(self, body: bytes) -> bytes:
        from cramjam import lz4

        block = bytes(lz4.compress_block(body, store_size=False))
        return len(body).to_bytes(_SIZE, "big") + block

    def decompress(self, body: bytes) -> bytes:
        from cramjam import DecompressionError, lz4

        if len(body) < _SIZE:
            raise ProtocolError(
                f"CQL frame truncated: expected to have at least 4 bytes, got {len(body)}"
            )
        size = _allowed(int.from_bytes(body[:_SIZE], "big"))
        if not size:
            return b""
        try:
            whole = bytes(lz4.decompress_block(body[_SIZE:], output_len=size))
        except DecompressionError:
            raise ProtocolError("CQL frame LZ4 uncompression failure") from None
        if len(whole) != size:
            raise ProtocolError(
                "Malformed CQL frame - provided uncompressed size different than real "
                "uncompressed size"
            )
        return whole


class Snappy:
    """A raw snappy block, which itself begins with its decompressed size."""

    def compress(self, body: bytes) -> bytes:
        from cramjam import snappy

        return bytes(snappy.compress_raw(body))

    def decompress(self, body: bytes) -> bytes:
        from cramjam import DecompressionError, snappy

        try:
            _allowed(snappy.decompress_raw_len(body))
            return bytes(snappy.decompress_raw(body))
        except DecompressionError:
            raise ProtocolError("CQL frame Snappy uncompression failure") from None


Compression = Lz4 | Snappy


@cache
def compressions() -> Mapping[str, Compression]:
    """Return the available algorithms by name: none if `cramjam` is not installed."""
    try:
        import cramjam  # noqa: F401 - checks that it is installed
    except ImportError:
        return {}
    return {"lz4": Lz4(), "snappy": Snappy()}


def compression_of(name: str | None) -> Compression | None:
    """Return the algorithm that STARTUP requests; raise ProtocolError if it is unknown."""
    if name is None:
        return None
    try:
        return compressions()[name.lower()]
    except KeyError:
        raise ProtocolError(f"Unknown compression algorithm: {name}") from None


def _allowed(size: int) -> int:
    if size > MAX_BODY:
        raise ProtocolError(f"request size too large (frame size {size:d}; limit {MAX_BODY:d})")
    return size
