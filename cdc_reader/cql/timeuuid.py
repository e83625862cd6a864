"""Version-1 UUIDs, as ScyllaDB creates and orders them in `cdc$time`.

The 60-bit time counts 100 ns ticks since 1582-10-15; the server uses whole microseconds only. The
low eight bytes are random. Before ScyllaDB 2026.1, even the bits of the RFC 4122 variant are
random, so this module never uses `uuid.UUID.version`.

Time UUIDs are ordered by time as a number, then by the low bytes, which are compared as signed
bytes. The smallest low half is therefore 80…80, and ``>= bound(a) AND < bound(b)`` selects the
half-open window [a, b).
"""

from __future__ import annotations

import uuid

from cdc_reader._time import Micros

TICKS_PER_MICRO = 10
UNIX_EPOCH_TICKS = 0x01B21DD213814000
SMALLEST_LOW = bytes([0x80] * 8)
LARGEST_LOW = bytes([0x7F] * 8)
_BY_SIGN = bytes(byte ^ 0x80 for byte in range(256))
"""Maps each byte to one whose unsigned order is the order of the signed bytes."""
TIME_DIGITS = ((15, 18), (9, 13), (0, 8))
"""Positions of the 15 digits of the time in a time UUID's text, most significant first.

Position 14 is the version."""
MIN_MICROS = -(UNIX_EPOCH_TICKS // TICKS_PER_MICRO)
MAX_MICROS = ((1 << 60) - 1 - UNIX_EPOCH_TICKS) // TICKS_PER_MICRO


def make(micros: Micros, low: bytes) -> uuid.UUID:
    """Return the time UUID of a time in µs since 1970, with `low` as its last eight bytes."""
    if not MIN_MICROS <= micros <= MAX_MICROS or len(low) != 8:
        raise ValueError(f"time uuid of {micros} µs and {len(low)} low bytes: out of range")
    return uuid.UUID(bytes=at_ticks(micros * TICKS_PER_MICRO, low))


def at_ticks(ticks: int, low: bytes) -> bytes:
    """Return the bytes of the time UUID of a time in ticks of 100 ns since 1970."""
    ticks += UNIX_EPOCH_TICKS
    time_low, time_mid, time_high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48
    return (time_low << 32 | time_mid << 16 | 0x1000 | time_high).to_bytes(8, "big") + low


def bound(micros: Micros) -> uuid.UUID:
    """Return the smallest time UUID of a microsecond; clamps times that are out of range."""
    return make(min(max(micros, MIN_MICROS), MAX_MICROS), SMALLEST_LOW)


def nth(micros: Micros, place: int) -> uuid.UUID:
    """Return the time UUID at index `place` (from 0) among a microsecond's UUIDs, in order."""
    return make(micros, place.to_bytes(8, "big").translate(_BY_SIGN))


def is_valid(raw: bytes) -> bool:
    """Return True if the 16 bytes are a time UUID: version 1, with any variant."""
    return len(raw) == 16 and raw[6] >> 4 == 1


def ticks(raw: bytes) -> int:
    """Return the 60-bit time of a time UUID's 16 bytes, without the version bits."""
    return (
        (int.from_bytes(raw[6:8], "big") & 0x0FFF) << 48
        | int.from_bytes(raw[4:6], "big") << 32
        | int.from_bytes(raw[:4], "big")
    )


def micros(raw: bytes) -> Micros:
    """Return the µs since 1970 of a time UUID's 16 bytes; for `cdc$time`, the write timestamp."""
    return (ticks(raw) - UNIX_EPOCH_TICKS) // TICKS_PER_MICRO


def created(table_id: uuid.UUID | None) -> Micros | None:
    """Return when a table with this id was created, in µs; None if the id contains no time."""
    if table_id is None or not is_valid(table_id.bytes):
        return None
    return micros(table_id.bytes)


def order_key(raw: bytes) -> tuple[int, bytes]:
    """Return a key that sorts time UUIDs as the server does."""
    return ticks(raw), raw[8:].translate(_BY_SIGN)
