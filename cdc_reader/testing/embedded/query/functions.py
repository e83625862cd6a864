"""The scalar functions of CQL."""

from __future__ import annotations

import functools
import secrets
import uuid
from collections.abc import Callable

from attrs import frozen

from cdc_reader.cql import timeuuid
from cdc_reader.cql.types import NATIVE_TYPES, CqlType, Native
from cdc_reader.testing.embedded.codec.marshal import MarshalError
from cdc_reader.testing.embedded.codec.order import signed
from cdc_reader.testing.embedded.codec.validation import validator
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.query.model import Execution, Value

_DAY_MS, _DAY_NS = 86_400_000, 86_400_000_000_000
_DATE_CENTRE = 1 << 31
_TICKS_PER_MILLI = 10_000


@frozen
class Function:
    """A function and its signature. It returns null if an argument is null."""

    name: str
    arguments: tuple[CqlType, ...]
    returns: CqlType
    body: Callable[..., bytes]
    uses_execution: bool = False

    def call(self, execution: Execution, arguments: list[Value]) -> bytes | None:
        """Return the serialized result for serialized arguments."""
        given = [argument for argument in arguments if isinstance(argument, bytes)]
        if len(given) != len(arguments):
            return None
        return self.body(execution, *given) if self.uses_execution else self.body(*given)


def overloads(name: str) -> list[Function]:
    """Return the functions with this name; raise InvalidRequest if there is none."""
    try:
        return _functions()[name]
    except KeyError:
        reason = "fromJson is not supported by this server" if name == "fromjson" else None
        raise InvalidRequest(reason or f"Unknown function {name} called") from None


def _long(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def _days(millis: int) -> bytes:
    try:
        return (millis // _DAY_MS + _DATE_CENTRE).to_bytes(4, "big")
    except OverflowError:
        raise InvalidRequest("Time is out of bounds for a date of this server") from None


def _timeuuid_at(ticks: int, low: bytes) -> bytes:
    """Return the version-1 UUID of a time in 100 ns ticks since 1970.

    Times that are out of range wrap around.
    """
    since_1970 = (ticks + timeuuid.UNIX_EPOCH_TICKS) % (1 << 60) - timeuuid.UNIX_EPOCH_TICKS
    return timeuuid.at_ticks(since_1970, low)


def _min_timeuuid(value: bytes) -> bytes:
    return _timeuuid_at(signed(value) * _TICKS_PER_MILLI, timeuuid.SMALLEST_LOW)


def _max_timeuuid(value: bytes) -> bytes:
    return _timeuuid_at((signed(value) + 1) * _TICKS_PER_MILLI - 1, timeuuid.LARGEST_LOW)


def _now(execution: Execution) -> bytes:
    low = bytearray(secrets.token_bytes(8))
    low[0] = low[0] & 0x3F | 0x80
    return _timeuuid_at(execution.now_us * timeuuid.TICKS_PER_MICRO, bytes(low))


@functools.cache
def _functions() -> dict[str, list[Function]]:
    t = {name: Native(name) for name in NATIVE_TYPES}
    functions = [
        Function("now", (), t["timeuuid"], _now, True),
        Function("currenttimeuuid", (), t["timeuuid"], _now, True),
        Function("currenttimestamp", (), t["timestamp"], lambda e: _long(e.now_us // 1000), True),
        Function("currentdate", (), t["date"], lambda e: _days(e.now_us // 1000), True),
        Function("currenttime", (), t["time"], lambda e: _long(e.now_us * 1000 % _DAY_NS), True),
        Function("uuid", (), t["uuid"], lambda: uuid.uuid4().bytes),
        Function("mintimeuuid", (t["timestamp"],), t["timeuuid"], _min_timeuuid),
        Function("maxtimeuuid", (t["timestamp"],), t["timeuuid"], _max_timeuuid),
        *_conversions(t),
    ]
    for name, of_type in t.items():
        if name not in ("blob", "counter"):
            functions += [
                Function(f"{name}asblob", (of_type,), t["blob"], _same),
                Function(f"blobas{name}", (t["blob"],), of_type, _checked(name, of_type)),
            ]
    by_name: dict[str, list[Function]] = {}
    for function in functions:
        by_name.setdefault(function.name, []).append(function)
    return by_name


def _same(value: bytes) -> bytes:
    return value


def _checked(name: str, of_type: CqlType) -> Callable[[bytes], bytes]:
    check = validator(of_type)

    def body(value: bytes) -> bytes:
        try:
            return check(value)
        except MarshalError:
            raise InvalidRequest(
                f"In call to function system.blobas{name}, value 0x{value.hex()} is not a valid "
                f"binary representation for type {of_type}"
            ) from None

    return body


def _conversions(t: dict[str, Native]) -> list[Function]:
    """Return the conversions between timeuuid, timestamp, date and Unix time."""
    sources: dict[str, Callable[[bytes], int]] = {
        "timeuuid": lambda value: timeuuid.micros(value) // 1000,
        "timestamp": signed,
        "date": lambda value: (int.from_bytes(value, "big") - _DATE_CENTRE) * _DAY_MS,
    }

    def convert(name: str, source: str, returns: str, to: Callable[[int], bytes]) -> Function:
        read = sources[source]
        return Function(name, (t[source],), t[returns], lambda value: to(read(value)))

    return [
        convert("dateof", "timeuuid", "timestamp", _long),
        convert("unixtimestampof", "timeuuid", "bigint", _long),
        *(convert("totimestamp", s, "timestamp", _long) for s in ("timeuuid", "date")),
        *(convert("tounixtimestamp", s, "bigint", _long) for s in sources),
        *(convert("todate", s, "date", _days) for s in ("timeuuid", "timestamp")),
    ]
