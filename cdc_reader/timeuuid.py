"""`cdc$time`: version-1 UUIDs as ScyllaDB makes and orders them.

The 60-bit time counts 100 ns ticks since 1582-10-15; the server only ever uses whole
microseconds. The low eight bytes are random (before 2026.1 even where RFC 4122 wants its
variant), so nothing here asks `uuid.UUID` for its version.

Order: the time as a number, then the low bytes compared as signed bytes. The smallest low
half is therefore 80…80, and ``>= bound(a) AND < bound(b)`` is the half-open window [a, b).
"""

from __future__ import annotations

import uuid

TICKS_PER_MICRO = 10
UNIX_EPOCH_TICKS = 0x01B21DD213814000
SMALLEST_LOW = bytes([0x80] * 8)
LARGEST_LOW = bytes([0x7F] * 8)
MIN_MICROS = -(UNIX_EPOCH_TICKS // TICKS_PER_MICRO)
MAX_MICROS = ((1 << 60) - 1 - UNIX_EPOCH_TICKS) // TICKS_PER_MICRO


def make(micros: int, low: bytes) -> uuid.UUID:
    """The time UUID of `micros` since 1970 with `low` as its last eight bytes."""
    if not MIN_MICROS <= micros <= MAX_MICROS or len(low) != 8:
        raise ValueError(f"time uuid of {micros} µs and {len(low)} low bytes: out of range")
    ticks = micros * TICKS_PER_MICRO + UNIX_EPOCH_TICKS
    time_low, time_mid, time_high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48
    high = time_low << 32 | time_mid << 16 | 0x1000 | time_high
    return uuid.UUID(bytes=high.to_bytes(8, "big") + low)


def bound(micros: int) -> uuid.UUID:
    """The smallest time UUID of this microsecond; times out of range go to the nearest end."""
    return make(min(max(micros, MIN_MICROS), MAX_MICROS), SMALLEST_LOW)


def ticks(raw: bytes) -> int:
    """The 60-bit time of a time UUID's 16 bytes, the version bits left out."""
    return (
        (int.from_bytes(raw[6:8], "big") & 0x0FFF) << 48
        | int.from_bytes(raw[4:6], "big") << 32
        | int.from_bytes(raw[:4], "big")
    )


def micros(raw: bytes) -> int:
    """Microseconds since 1970 of a time UUID's 16 bytes (the write timestamp, for cdc$time)."""
    return (ticks(raw) - UNIX_EPOCH_TICKS) // TICKS_PER_MICRO


def order_key(raw: bytes) -> tuple[int, bytes]:
    """A key that sorts time UUIDs as the server does."""
    return ticks(raw), bytes(byte ^ 0x80 for byte in raw[8:])
