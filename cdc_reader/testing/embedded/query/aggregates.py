"""Aggregates over all rows of a result: count, min, max, sum, avg."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from cdc_reader.cql.types import CqlType, Native
from cdc_reader.testing.embedded.codec.native import decode, encode
from cdc_reader.testing.embedded.codec.order import sort_key
from cdc_reader.testing.embedded.errors import InvalidRequest

_NUMBERS = frozenset("tinyint smallint int bigint counter varint float double decimal".split())


@frozen
class Aggregate:
    """A function of all values that are not null, in order of the rows."""

    returns: CqlType
    combine: Callable[[list[bytes]], bytes | None]


def _count(_of: CqlType | None) -> Aggregate:
    return Aggregate(Native("bigint"), lambda values: len(values).to_bytes(8, "big"))


def _extreme(pick: Callable[..., bytes | None]) -> Callable[[CqlType | None], Aggregate]:
    def aggregate(of: CqlType | None) -> Aggregate:
        if of is None:
            raise InvalidRequest("min and max need a column")
        return Aggregate(of, lambda values: pick(values, key=sort_key(of), default=None))

    return aggregate


def _arithmetic(
    name: str, combine: Callable[[list[Any]], Any]
) -> Callable[[CqlType | None], Aggregate]:
    def aggregate(of: CqlType | None) -> Aggregate:
        if not isinstance(of, Native) or of.name not in _NUMBERS:
            raise InvalidRequest(
                f"Invalid call to function system.{name}, none of its type signatures match"
            )
        returns = Native("bigint") if of.name == "counter" else of

        def result(values: list[bytes]) -> bytes:
            return encode(returns, combine([decode(of, value) for value in values]))

        return Aggregate(returns, result)

    return aggregate


def _average(numbers: list[Any]) -> Any:
    if not numbers:
        return 0
    total = sum(numbers)
    return int(total / len(numbers)) if isinstance(total, int) else total / len(numbers)


AGGREGATES: dict[str, Callable[[CqlType | None], Aggregate]] = {
    "count": _count,
    "min": _extreme(min),
    "max": _extreme(max),
    "sum": _arithmetic("sum", sum),
    "avg": _arithmetic("avg", _average),
}
