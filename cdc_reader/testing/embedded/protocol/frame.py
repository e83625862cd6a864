"""Reads and writes frames, which consist of a nine-byte header and a body.

version (1: direction bit and number) | flags (1) | stream (2) | opcode (1) | body length (4)
"""

from __future__ import annotations

import enum
import struct

from attrs import define, field, frozen

HEADER = struct.Struct(">BBhBI")
MAX_BODY = 256 * 1024 * 1024
SUPPORTED_VERSIONS = (3, 4)
NEWEST_VERSION = 4
RESPONSE = 0x80


class Opcode(enum.IntEnum):
    """The kind of a frame."""

    ERROR = 0x00
    STARTUP = 0x01
    READY = 0x02
    AUTHENTICATE = 0x03
    OPTIONS = 0x05
    SUPPORTED = 0x06
    QUERY = 0x07
    RESULT = 0x08
    PREPARE = 0x09
    EXECUTE = 0x0A
    REGISTER = 0x0B
    EVENT = 0x0C
    BATCH = 0x0D
    AUTH_CHALLENGE = 0x0E
    AUTH_RESPONSE = 0x0F
    AUTH_SUCCESS = 0x10


class Flag(enum.IntFlag):
    """Flags of a frame header."""

    COMPRESSION = 0x01
    TRACING = 0x02
    CUSTOM_PAYLOAD = 0x04
    WARNING = 0x08


@frozen
class Frame:
    """A request frame as received; `version` excludes the direction bit."""

    version: int
    flags: int
    stream: int
    opcode: int
    body: bytes


@frozen
class UnreadableFrame:
    """An invalid header; the connection is closed after the error is sent."""

    message: str


@define
class FrameReader:
    """Splits received bytes, in chunks of any size, into frames."""

    _buffer: bytearray = field(factory=bytearray, init=False)

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        self._buffer += data

    def next_frame(self) -> Frame | UnreadableFrame | None:
        """Return the next complete frame; None if more bytes are needed."""
        buffer = self._buffer
        if buffer and (version := buffer[0] & ~RESPONSE) not in SUPPORTED_VERSIONS:
            return UnreadableFrame(f"Invalid or unsupported protocol version: {version}")
        if len(buffer) < HEADER.size:
            return None
        _, flags, stream, opcode, length = HEADER.unpack_from(buffer)
        if length > MAX_BODY:
            return UnreadableFrame(
                f"request size too large (frame size {length:d}; limit {MAX_BODY:d})"
            )
        end = HEADER.size + length
        if len(buffer) < end:
            return None
        body = bytes(memoryview(buffer)[HEADER.size : end])
        frame = Frame(buffer[0] & ~RESPONSE, flags, stream, opcode, body)
        del buffer[:end]
        return frame


def encode_frame(
    version: int, stream: int, opcode: int, body: bytes, flags: int = 0, rest: bytes = b""
) -> bytes:
    """Encode a response frame, whose body is `body` followed by `rest`."""
    size = len(body) + len(rest)
    return b"".join((HEADER.pack(RESPONSE | version, flags, stream, opcode, size), body, rest))
