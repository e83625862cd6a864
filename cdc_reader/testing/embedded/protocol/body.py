"""Reads and writes the types of the protocol specification: [string], [bytes], [int] and so on.

A body that is too short raises ProtocolError, with ScyllaDB's message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from attrs import define

from cdc_reader.testing.embedded.errors import ProtocolError
from cdc_reader.testing.embedded.query.model import UNSET, Value

_SHORT = struct.Struct(">H")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


@define
class BodyReader:
    """Reads a request's body sequentially."""

    body: bytes
    version: int = 4
    _position: int = 0

    def take(self, size: int) -> bytes:
        """Read the next `size` bytes."""
        start, end = self._position, self._position + size
        if size < 0 or end > len(self.body):
            raise ProtocolError(
                f"truncated frame: expected {size} bytes, length is {len(self.body) - start}"
            )
        self._position = end
        return self.body[start:end]

    def rest(self) -> bytes:
        """Read the remaining bytes."""
        return self.take(len(self.body) - self._position)

    def byte(self) -> int:
        return self.take(1)[0]

    def short(self) -> int:
        return int(_SHORT.unpack(self.take(2))[0])

    def int32(self) -> int:
        return int(_INT.unpack(self.take(4))[0])

    def int64(self) -> int:
        return int(_LONG.unpack(self.take(8))[0])

    def string(self) -> str:
        return self._text(self.take(self.short()))

    def long_string(self) -> str:
        return self._text(self.take(self.int32()))

    def short_bytes(self) -> bytes:
        return self.take(self.short())

    def nullable_bytes(self) -> bytes | None:
        """Read [bytes]; a negative length is null."""
        size = self.int32()
        return None if size < 0 else self.take(size)

    def value(self) -> Value:
        """Read a [value], which may be null or, from version 4 on, "not set"."""
        size = self.int32()
        if size >= 0:
            return self.take(size)
        if size == -2 and self.version >= 4:
            return UNSET
        if size == -1 or self.version < 4:
            return None
        raise ProtocolError(f"invalid value length: {size}")

    def string_list(self) -> list[str]:
        return [self.string() for _ in range(self.short())]

    def string_map(self) -> dict[str, str]:
        return {self.string(): self.string() for _ in range(self.short())}

    def bytes_map(self) -> dict[str, bytes | None]:
        return {self.string(): self.nullable_bytes() for _ in range(self.short())}

    @staticmethod
    def _text(raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise ProtocolError("Cannot decode string as UTF8") from None


def short(number: int) -> bytes:
    """Encode a [short]."""
    return _SHORT.pack(number)


def int32(number: int) -> bytes:
    """Encode an [int]."""
    return _INT.pack(number)


def string(text: str) -> bytes:
    """Encode a [string]."""
    raw = text.encode()
    return _SHORT.pack(len(raw)) + raw


def short_bytes(raw: bytes) -> bytes:
    """Encode [short bytes]."""
    return _SHORT.pack(len(raw)) + raw


def nullable_bytes(raw: bytes | None) -> bytes:
    """Encode [bytes]; None is null."""
    return _INT.pack(-1) if raw is None else _INT.pack(len(raw)) + raw


def string_list(texts: Iterable[str]) -> bytes:
    """Encode a [string list]."""
    items = [string(text) for text in texts]
    return _SHORT.pack(len(items)) + b"".join(items)


def string_multimap(texts: Mapping[str, Iterable[str]]) -> bytes:
    """Encode a [string multimap]."""
    items = [string(key) + string_list(values) for key, values in texts.items()]
    return _SHORT.pack(len(items)) + b"".join(items)
