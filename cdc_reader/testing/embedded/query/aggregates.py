"""Aggregate functions: count, min, max, sum, avg."""

from __future__ import annotations

import functools
import operator
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from attrs import frozen

from cdc_reader.cql.types import CqlType, Native
from cdc_reader.testing.embedded.codec.native import decode, encode, scale
from cdc_reader.testing.embedded.codec.order import EXACT, sort_key
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.query.cast import single

_NUMBERS = frozenset("tinyint smallint int bigint counter varint float double decimal".split())


@frozen
class Aggregate:
    """An aggregate: `combine` computes it from the non-null values, in row order."""

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
    name: str, combine: Callable[[str, list[Any]], Any]
) -> Callable[[CqlType | None], Aggregate]:
    def aggregate(of: CqlType | None) -> Aggregate:
        if not isinstance(of, Native) or of.name not in _NUMBERS:
            raise InvalidRequest(
                f"Invalid call to function system.{name}, none of its type signatures match"
            )
        returns = Native("bigint") if of.name == "counter" else of

        def result(values: list[bytes]) -> bytes:
            found = combine(of.name, [decode(of, value) for value in values])
            try:
                return encode(returns, Decimal(found) if of.name == "decimal" else found)
            except struct.error:
                raise InvalidRequest(
                    "Sum overflow. Values should be casted to a wider type."
                ) from None

        return Aggregate(returns, result)

    return aggregate


def _sum(name: str, numbers: list[Any]) -> Any:
    """Add the values in row order: decimals exactly, floats with the rounding of their type."""
    adders: dict[str, Callable[[Any, Any], Any]] = {
        "decimal": EXACT.add,
        "float": lambda total, number: single(total + number),
    }
    add = adders.get(name, operator.add)
    return functools.reduce(add, numbers, 0)


def _average(name: str, numbers: list[Any]) -> Any:
    """Return the average, rounded toward zero for integers and half to even for decimals.

    The average of decimals has the scale of their sum.
    """
    total, count = _sum(name, numbers), max(len(numbers), 1)
    if isinstance(total, float):
        return total / count
    if isinstance(total, int):
        return int(Fraction(total, count))
    places = scale(total)
    rounded = round(Fraction(int(EXACT.scaleb(total, places)), count))
    return EXACT.scaleb(Decimal(rounded), -places)


AGGREGATES: dict[str, Callable[[CqlType | None], Aggregate]] = {
    "count": _count,
    "min": _extreme(min),
    "max": _extreme(max),
    "sum": _arithmetic("sum", _sum),
    "avg": _arithmetic("avg", _average),
}
