"""A bounds-checked cursor over bytes."""

from __future__ import annotations

from cdc_reader.errors import DecodeError


class Buffer:
    """Reads the native protocol's primitives in sequence, big-endian."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.end = len(data)

    def take(self, size: int) -> bytes:
        """Read `size` bytes; raise DecodeError if there are fewer."""
        stop = self.position + size
        if size < 0 or stop > self.end:
            left = self.end - self.position
            raise DecodeError(f"expected {size} bytes at offset {self.position}, found {left}")
        taken = self.data[self.position : stop]
        self.position = stop
        return taken

    def unsigned_short(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def integer(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def count(self, what: str) -> int:
        """Read an int that is a count; raise DecodeError if it is negative."""
        if (count := self.integer()) < 0:
            raise DecodeError(f"expected a number of {what}, found {count}")
        return count

    def value(self) -> bytes | None:
        """Read a length and that many bytes; return None for a negative length."""
        length = self.integer()
        return None if length < 0 else self.take(length)

    def string(self) -> str:
        """Read a [string]: two bytes of length, then UTF-8."""
        raw = self.take(self.unsigned_short())
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise DecodeError(f"expected UTF-8 text, found {raw.hex()}") from None

    def vint(self) -> int:
        """Read an unsigned vint: the first byte's leading 1 bits count the bytes that follow."""
        first = self.take(1)[0]
        extra = 8 - (first ^ 0xFF).bit_length()
        high = first & (0xFF >> extra)
        return high << 8 * extra | int.from_bytes(self.take(extra), "big")

    def signed_vint(self) -> int:
        """Read a zigzag-encoded variable-length integer."""
        encoded = self.vint()
        return encoded >> 1 ^ -(encoded & 1)

    def expect_end(self, what: str) -> None:
        """Raise DecodeError if any bytes are left."""
        if self.position != self.end:
            raise DecodeError(f"{what} has {self.end - self.position} bytes too many")
