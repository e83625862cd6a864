"""One client's connection, without its socket: converts received bytes to requests.

The table lists the allowed requests. The response to any other request is ScyllaDB's error. The
connection stays open, except after an unreadable header.

    state            accepts                    next
    NEW              OPTIONS, STARTUP           READY, or AUTHENTICATING if credentials are required
    AUTHENTICATING   AUTH_RESPONSE              READY if the credentials are correct
    READY            all but STARTUP            READY
    CLOSED           nothing

If STARTUP requests compression, bodies are compressed in both directions, beginning with the
response to STARTUP.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from attrs import define, evolve, field, frozen

from cdc_reader.testing.embedded.errors import CqlError, ProtocolError
from cdc_reader.testing.embedded.protocol.compression import Compression
from cdc_reader.testing.embedded.protocol.frame import (
    NEWEST_VERSION,
    Flag,
    Frame,
    FrameReader,
    Opcode,
    UnreadableFrame,
)
from cdc_reader.testing.embedded.protocol.requests import Request, decode


class State(enum.Enum):
    """The state of the handshake."""

    NEW = enum.auto()
    AUTHENTICATING = enum.auto()
    READY = enum.auto()
    CLOSED = enum.auto()


@frozen
class Call:
    """A request, or the error to respond with; `traced` is True if a trace is requested."""

    version: int
    stream: int
    request: Request | CqlError
    traced: bool = False


@define
class Connection:
    """The protocol state of a connection; `compression` is the algorithm that the client chose."""

    state: State = State.NEW
    version: int = NEWEST_VERSION
    compression: Compression | None = None
    _frames: FrameReader = field(factory=FrameReader, init=False)

    def receive(self, data: bytes) -> Iterator[Call]:
        """Yield the calls that `data` completes, in order.

        The caller must handle each call before it takes the next one.
        """
        self._frames.feed(data)
        while self.state is not State.CLOSED:
            match self._frames.next_frame():
                case None:
                    return
                case UnreadableFrame(message):
                    self.state = State.CLOSED
                    yield Call(NEWEST_VERSION, 0, ProtocolError(message))
                case Frame() as frame:
                    self.version = frame.version
                    traced = bool(frame.flags & Flag.TRACING)
                    yield Call(frame.version, frame.stream, self._request(frame), traced)

    def _request(self, frame: Frame) -> Request | CqlError:
        try:
            if refusal := self._refusal(frame.opcode):
                return ProtocolError(refusal)
            return decode(self._decompressed(frame))
        except CqlError as error:
            return error

    def _decompressed(self, frame: Frame) -> Frame:
        """Decompress the frame; without negotiated compression, return it unchanged."""
        if self.compression is None or not frame.flags & Flag.COMPRESSION:
            return frame
        body = self.compression.decompress(frame.body)
        return evolve(frame, flags=frame.flags & ~Flag.COMPRESSION, body=body)

    def _refusal(self, opcode: int) -> str | None:
        """Return the error for a frame that the current state forbids; None if it is allowed."""
        match self.state:
            case State.NEW if opcode not in (Opcode.OPTIONS, Opcode.STARTUP):
                return f"Unexpected message {opcode}, expecting STARTUP or OPTIONS"
            case State.AUTHENTICATING if opcode != Opcode.AUTH_RESPONSE:
                return f"Unexpected message {opcode}, expecting SASL_RESPONSE"
            case State.READY if opcode == Opcode.STARTUP:
                return "Unexpected message STARTUP, the connection is already initialized"
            case _:
                return None
