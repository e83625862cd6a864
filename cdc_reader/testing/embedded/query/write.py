"""Creates the cells of a statement, with its timestamp and TTL."""

from __future__ import annotations

from collections.abc import Callable

from attrs import field, frozen

from cdc_reader.cql import timeuuid
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.query.model import Execution, Ordinals
from cdc_reader.testing.embedded.storage.cell import Cell
from cdc_reader.testing.embedded.storage.row import LiveRow

_CLOCK_SEQUENCE_BITS = 14
_REFERENCE_US = 1_262_304_000_000_000  # 2010-01-01; mirrors the times of prepended elements
_NODE = b"\xd4\x3d\x00\x22\x79\x7d"
MAX_TTL = 630_720_000

ReadRow = Callable[[], LiveRow]
"""Reads the stored row that an assignment changes; only lists and counters need this."""


@frozen
class Write:
    """A statement's write settings: `ttl` in seconds (0 for none), and `timestamp` in µs.

    With `expiry_first`, cells with the same timestamp are compared by expiry before they are
    compared by value: the later expiry wins.
    """

    timestamp: int
    ttl: int
    execution: Execution = field(repr=False)
    expiry_first: bool = True

    def cell(self, value: bytes | None) -> Cell:
        """Return a live cell or, for null, a dead cell, which never has a TTL."""
        if value is None or not self.ttl:
            return Cell(self.timestamp, value)
        expiry = self.execution.now + self.ttl
        # Of two cells that expire together, the one written later, with the shorter TTL, wins.
        precedence = expiry * (MAX_TTL + 1) - self.ttl if self.expiry_first else 0
        return Cell(self.timestamp, value, self.ttl, expiry, precedence)

    def dead(self) -> Cell:
        return Cell(self.timestamp, None)

    def appended_keys(self, count: int) -> list[bytes]:
        """Return timeuuids for `count` elements appended to a list."""
        ordinals = self.execution.ordinals
        return [_element_key(self.timestamp, ordinals.append()) for _ in range(count)]

    def prepended_keys(self, count: int) -> list[bytes]:
        """Return timeuuids for `count` elements prepended to a list."""
        if self.timestamp < _REFERENCE_US:
            raise InvalidRequest("List prepend custom timestamp must be greater than Jan 1 2010 "
                                 "00:00:00")  # fmt: skip
        mirrored = 2 * _REFERENCE_US - self.timestamp
        return [_element_key(mirrored, o) for o in self.execution.ordinals.prepend(count)]


def _element_key(micros: int, ordinal: int) -> bytes:
    """Return the timeuuid at `micros` that sorts by `ordinal`, which is below 2^17.

    The upper 3 bits of the ordinal are added to the time as 100 ns ticks; the lower 14 are the
    clock sequence. The top bit of the sequence's low byte is inverted, because timeuuids compare as
    signed bytes.
    """
    if ordinal >= Ordinals.LIMIT:
        raise InvalidRequest(f"Too many list elements in one statement, at most {Ordinals.LIMIT}")
    ticks = micros * timeuuid.TICKS_PER_MICRO + (ordinal >> _CLOCK_SEQUENCE_BITS)
    sequence = ordinal & (1 << _CLOCK_SEQUENCE_BITS) - 1
    low = bytes((0x80 | sequence >> 8, sequence & 0xFF ^ 0x80)) + _NODE
    return timeuuid.at_ticks(ticks, low)
