"""Builds Arrow arrays from scalar cells, by the name of the native CQL type."""

from __future__ import annotations

import ipaddress
import sys
from array import array
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

from cdc_reader.decoding.arrow_type import DURATION, NATIVE
from cdc_reader.decoding.buffer import Buffer
from cdc_reader.errors import DecodeError

Cells = list[bytes | None]
"""The values of one column as raw bytes; None for null."""

_TYPECODES = {1: "b", 2: "h", 4: "i", 8: "q"}
_SIGN_BIT = 1 << 31


def _integers(cells: Cells, width: int) -> array[int]:
    """Read big-endian signed integers of `width` bytes; null and empty cells are 0."""
    zero = bytes(width)
    joined = b"".join(cell or zero for cell in cells)
    if len(joined) != width * len(cells) or any(cell and len(cell) != width for cell in cells):
        wrong = next(cell for cell in cells if cell and len(cell) != width)
        raise DecodeError(f"expected {width} bytes, found {len(wrong)}")
    values = array(_TYPECODES[width], joined)
    if sys.byteorder == "little":
        values.byteswap()
    return values


def _validity(cells: Cells) -> pa.Buffer | None:
    """Return Arrow's null bitmap; null and empty cells are null."""
    return None if all(cells) else pa.array([bool(cell) for cell in cells]).buffers()[1]


def _fixed(name: str, width: int) -> Callable[[Cells], pa.Array]:
    def decode(cells: Cells) -> pa.Array:
        values = pa.py_buffer(_integers(cells, width))
        return pa.Array.from_buffers(NATIVE[name], len(cells), [_validity(cells), values])

    return decode


def _boolean(cells: Cells) -> pa.Array:
    if any(cell and len(cell) != 1 for cell in cells):
        raise DecodeError("expected 1 byte for a boolean, found more")
    return pa.array([cell != b"\0" if cell else None for cell in cells], pa.bool_())


def _date(cells: Cells) -> pa.Array:
    """Convert unsigned days, in which 2^31 is 1970-01-01, by flipping the top bit."""
    days = array("i", ((value ^ -_SIGN_BIT) for value in _integers(cells, 4)))
    return pa.Array.from_buffers(NATIVE["date"], len(cells), [_validity(cells), pa.py_buffer(days)])


def _binary(cells: Cells) -> pa.Array:
    return pa.array(cells, pa.binary())


def _text(cells: Cells) -> pa.Array:
    try:
        return pa.array(cells, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        raise DecodeError("expected UTF-8 text, found other bytes") from None


def _ascii(cells: Cells) -> pa.Array:
    if not all(cell.isascii() for cell in cells if cell):
        raise DecodeError("expected ASCII text, found other bytes")
    return _text(cells)


def _strings(convert: Callable[[bytes], str]) -> Callable[[Cells], pa.Array]:
    def decode(cells: Cells) -> pa.Array:
        return pa.array([convert(cell) if cell else None for cell in cells], pa.string())

    return decode


def _uuid(cell: bytes) -> str:
    if len(cell) != 16:
        raise DecodeError(f"expected 16 bytes, found {len(cell)}")
    text = cell.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _inet(cell: bytes) -> str:
    if len(cell) not in (4, 16):
        raise DecodeError(f"expected 4 or 16 bytes, found {len(cell)}")
    address = ipaddress.ip_address(cell)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    # Only Python 3.13 and newer print these addresses in this form.
    return f"::ffff:{mapped}" if mapped else str(address)


def varint_text(cell: bytes) -> str:
    """Return all digits of a two's complement integer."""
    # Via Decimal, because Python refuses to print integers of more than 4,300 digits.
    return str(Decimal(int.from_bytes(cell, "big", signed=True)))


def decimal_text(cell: bytes) -> str:
    """Return a decimal's exact text, with the scale as stored (``1.50`` is not ``1.5``)."""
    if len(cell) < 5:
        raise DecodeError(f"expected at least 5 bytes, found {len(cell)}")
    scale = int.from_bytes(cell[:4], "big", signed=True)
    unscaled = Decimal(int.from_bytes(cell[4:], "big", signed=True)).as_tuple()
    return str(Decimal((unscaled.sign, unscaled.digits, -scale)))


def _duration(cells: Cells) -> pa.Array:
    parts = [_duration_parts(cell) if cell else None for cell in cells]
    try:
        return pa.array(parts, DURATION)
    except (pa.ArrowInvalid, OverflowError):
        raise DecodeError("a part of a duration is out of range") from None


def _duration_parts(cell: bytes) -> dict[str, int]:
    buffer = Buffer(cell)
    parts = {name: buffer.signed_vint() for name in ("months", "days", "nanoseconds")}
    buffer.expect_end("a duration")
    return parts


SCALARS: dict[str, Callable[[Cells], pa.Array]] = {
    "ascii": _ascii,
    "bigint": _fixed("bigint", 8),
    "blob": _binary,
    "boolean": _boolean,
    "counter": _fixed("counter", 8),
    "date": _date,
    "decimal": _strings(decimal_text),
    "double": _fixed("double", 8),
    "duration": _duration,
    "float": _fixed("float", 4),
    "inet": _strings(_inet),
    "int": _fixed("int", 4),
    "smallint": _fixed("smallint", 2),
    "text": _text,
    "time": _fixed("time", 8),
    "timestamp": _fixed("timestamp", 8),
    "timeuuid": _strings(_uuid),
    "tinyint": _fixed("tinyint", 1),
    "uuid": _strings(_uuid),
    "varint": _strings(varint_text),
}
