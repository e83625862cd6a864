"""Bodies of frames in compressed form: lz4 and snappy, as the protocol's specification has them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Protocol

from cdc_reader.testing.embedded.errors import ProtocolError
from cdc_reader.testing.embedded.protocol.frame import MAX_BODY

_SIZE = 4


class Compression(Protocol):
    """One algorithm."""

    def compress(self, body: bytes) -> bytes:
        """The body as it goes into a frame with the compression flag."""
        ...

    def decompress(self, body: bytes) -> bytes:
        """The body that such a frame holds; ProtocolError if it is damaged or too large."""
        ...


class Lz4:
    """An lz4 block behind its size when decompressed, a big-endian [int]."""

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
    """A raw snappy block, which begins with its size when decompressed."""

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


@cache
def compressions() -> Mapping[str, Compression]:
    """The algorithms by name that there is a library for: both, or none without `cramjam`."""
    try:
        import cramjam  # noqa: F401 - whether it is there
    except ImportError:
        return {}
    return {"lz4": Lz4(), "snappy": Snappy()}


def chosen(name: str | None) -> Compression | None:
    """The algorithm that STARTUP asks for; ProtocolError if it is not one of ours."""
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
