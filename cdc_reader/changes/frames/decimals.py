"""Converts strings of decimal numbers to Arrow decimals without loss of precision.

Arrow's cast is exact only for strings whose digits fit the target type, and is used only for these.
For other strings, the cast wraps modulo 2^128, or reads outside its tables if the exponent is
large.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

_SHOWN = 60


class DoesNotFitError(ValueError):
    """A number has more digits before or after the decimal point than the type allows."""

    def __init__(self, text: str) -> None:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
        super().__init__(shown)


def decimals(texts: pa.StringArray, kind: pa.Decimal128Type) -> pa.Decimal128Array:
    """Convert strings to decimals of type `kind`.

    Raises DoesNotFitError for the first number that `kind` cannot hold exactly. Trailing zeros
    of a fraction are ignored.
    """
    is_other = pc.invert(pc.fill_null(pc.match_substring_regex(texts, _plain(kind)), True))
    if not pc.any(is_other).as_py():
        return texts.cast(kind)
    number = _exact(kind)
    others = pa.array([number(text) for text in texts.filter(is_other).to_pylist()], kind)
    plain = pc.if_else(is_other, pa.scalar(None, texts.type), texts)
    return pc.replace_with_mask(plain.cast(kind), is_other, others)


def _plain(kind: pa.Decimal128Type) -> str:
    """Return a pattern for numbers that fit `kind` and have no exponent or surplus zeros."""
    whole, scale = kind.precision - kind.scale, kind.scale
    digits = f"(?:0|[1-9][0-9]{{0,{whole - 1}}})" if whole else "0"
    fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    return f"^-?{digits}{fraction}$"


def _exact(kind: pa.Decimal128Type) -> Callable[[str], Decimal]:
    """Return a function that converts one string, even if it has an exponent or surplus zeros."""
    unit = Decimal((0, (1,), -kind.scale))
    exact = decimal.Context(
        prec=kind.precision,
        Emin=decimal.MIN_EMIN,
        Emax=decimal.MAX_EMAX,
        traps=[decimal.Inexact, decimal.InvalidOperation],
    )

    def number(text: str) -> Decimal:
        try:
            return exact.quantize(Decimal(text), unit)
        except (decimal.Inexact, decimal.InvalidOperation):
            raise DoesNotFitError(text) from None

    return number
