"""Identifiers of the streams of a CDC log."""

from __future__ import annotations

from typing import Self

STREAM_ID_BYTES = 16


class StreamId(bytes):
    """A stream of the log: the 16 bytes of ``cdc$stream_id``.

    Layout, big-endian: a signed 64-bit token, 38 random bits, 22 bits of vnode index and 4 bits of
    version. In ids from before ScyllaDB 4.3, the low 64 bits are random, so only the token is
    meaningful. The class is a subclass of `bytes` to save memory, because a large cluster has
    millions of streams.
    """

    __slots__ = ()

    def __new__(cls, raw: bytes) -> Self:
        if len(raw) != STREAM_ID_BYTES:
            expected = f"expected {STREAM_ID_BYTES} bytes, found {len(raw)}"
            raise ValueError(f"stream id {raw.hex()!r}: {expected}")
        return super().__new__(cls, raw)

    @classmethod
    def from_parts(cls, token: int, random: int, index: int, version: int = 1) -> Self:
        """Build an id from its parts; raise ValueError if a part does not fit its bits."""
        if random >> 38 or index >> 22 or version >> 4:
            raise ValueError(f"stream id parts {random}, {index}, {version}: out of range")
        low = random << 26 | index << 4 | version
        return cls(token.to_bytes(8, "big", signed=True) + low.to_bytes(8, "big"))

    @property
    def token(self) -> int:
        """The token of the stream's partition."""
        return int.from_bytes(self[:8], "big", signed=True)

    @property
    def random(self) -> int:
        return self._low >> 26

    @property
    def index(self) -> int:  # type: ignore[override]  # an id does not need `bytes.index`
        """The vnode's number in its generation; 0 with tablets."""
        return self._low >> 4 & (1 << 22) - 1

    @property
    def version(self) -> int:
        return self._low & 0xF

    @property
    def _low(self) -> int:
        return int.from_bytes(self[8:], "big")

    def __repr__(self) -> str:
        return f"StreamId({self.hex()})"

    __str__ = __repr__
