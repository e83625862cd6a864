"""Conversion of decimal texts to Arrow decimals, compared with Python's `decimal`."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_reader.changes.frames.decimals import DoesNotFitError, decimals
from cdc_reader.changes.frames.value_types import ValueTypes
from cdc_reader.cql.names import quoted
from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import CqlType, ListType, MapType, Native, SetType, TupleType, UserType
from cdc_reader.decoding import arrow_type
from cdc_reader.errors import ConfigurationError

KINDS = st.integers(1, 38).flatmap(
    lambda precision: st.builds(pa.decimal128, st.just(precision), st.integers(0, precision))
)
FARTHEST = 2**31
EXPONENTS = st.integers(-80, 80) | st.integers(-FARTHEST, FARTHEST)


@st.composite
def numbers(draw: st.DrawFn, kind: pa.Decimal128Type) -> str:
    """Draw any number, or one near the limits of `kind`, in the kernel's text form."""
    if draw(st.booleans()):
        digits = draw(st.integers(-(10 ** draw(st.integers(0, 90))), 10**90))
        exponent = draw(EXPONENTS)
    else:
        digits = draw(st.integers(-(10**kind.precision) - 1, 10**kind.precision + 1))
        exponent = -kind.scale
    zeros = draw(st.integers(0, 50))
    sign, places, _ = Decimal(digits * 10**zeros).as_tuple()
    return str(Decimal((sign, places, exponent - zeros)))


KIND_AND_TEXTS = KINDS.flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(st.none() | numbers(kind), max_size=4))
)


def fits(text: str, kind: pa.Decimal128Type) -> bool:
    """Return True if the decimal type can represent the number exactly."""
    number = Decimal(text)
    if not number:
        return True
    if not -kind.scale - len(text) <= number.adjusted() < kind.precision:
        return False
    units = Fraction(number) * Fraction(10) ** int(kind.scale)
    return units.denominator == 1 and abs(units) < Fraction(10) ** int(kind.precision)


@given(KIND_AND_TEXTS)
@example((pa.decimal128(38, 18), ["12345678912345678912345"]))
@example((pa.decimal128(10, 2), ["1.2345"]))
@example((pa.decimal128(10, 1), ["1.500", "-0", None, "-0.00", "1E+1"]))
@example((pa.decimal128(38, 0), ["1E+2147483647"]))
@example((pa.decimal128(38, 18), ["1E-2147483647"]))
@example((pa.decimal128(38, 18), ["0E+2147483647", "0E-2147483647"]))
@example((pa.decimal128(38, 0), ["9" * 39]))
@example((pa.decimal128(38, 0), ["9" * 5_000]))
@example((pa.decimal128(3, 3), ["1.000"]))
def test_a_number_is_converted_exactly_or_refused(
    given: tuple[pa.Decimal128Type, list[str | None]],
) -> None:
    """Numbers are converted exactly. If one does not fit the decimal type, an error is raised."""
    kind, texts = given
    array = pa.array(texts, pa.string())
    if all(text is None or fits(text, kind) for text in texts):
        found = decimals(array, kind)
        assert found.type == kind
        assert found.to_pylist() == [None if text is None else Decimal(text) for text in texts]
    else:
        with pytest.raises(DoesNotFitError):
            decimals(array, kind)


VARINT = Native("varint")
WIDE = "12345678912345678912345"
NESTED: list[tuple[CqlType, object]] = [
    (ListType(VARINT), ["1", WIDE]),
    (SetType(VARINT), [WIDE]),
    (MapType(VARINT, Native("int")), [(WIDE, 1)]),
    (MapType(Native("int"), VARINT), [(1, WIDE)]),
    (TupleType((Native("int"), VARINT)), {"_1": 1, "_2": WIDE}),
    (UserType("ks", "u", (("a", ListType(VARINT)),)), {"a": [WIDE]}),
]


@pytest.mark.parametrize(("kind", "value"), NESTED, ids=[str(kind) for kind, _ in NESTED])
def test_a_nested_number_that_does_not_fit_ends_the_query(kind: CqlType, value: object) -> None:
    """If a nested number does not fit its type, the error names option, column and number."""
    cells = pa.array([None, value], arrow_type(kind))
    batch = pa.record_batch([cells], ["v"])
    types = ValueTypes(pa.decimal128(38, 18))
    with pytest.raises(ConfigurationError) as refused:
        types.converter([Column("v", kind)])(batch)
    assert str(refused.value) == (
        f"decimal_type is 'decimal(38, 18)': column v holds {WIDE}, which does not fit: "
        "give 'string' or more digits, or on_bad_record 'skip' or 'quarantine'"
    )


def test_an_error_shortens_a_long_number() -> None:
    """An error shows the first 60 characters of a long number, and its length."""
    with pytest.raises(DoesNotFitError, match=r"^7{60}\.\.\. \(100000 characters\)$"):
        decimals(pa.array(["7" * 100_000]), pa.decimal128(38, 0))


NAMED = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
"""Names of columns; CQL quotes most of them."""


@given(st.dictionaries(NAMED | st.just("price"), KINDS, min_size=1), st.none() | KINDS)
def test_types_by_column(chosen: dict[str, pa.Decimal128Type], others: pa.DataType | None) -> None:
    """Each column has its own type, and all others have the type without a name, or text."""
    entries = [f"{quoted(name)} : {shown(kind)}" for name, kind in chosen.items()]
    types = ValueTypes.parse(" , ".join([*entries, *([shown(others)] if others else [])]))
    for name, kind in chosen.items():
        assert types.of_column(Column(name, Native("decimal"))) == kind
        assert types.of_column(Column(name, ListType(VARINT))).value_type == kind
    rest = others or pa.string()
    assert types.of_column(Column("no column's name", Native("decimal"))) == rest


def shown(kind: pa.DataType) -> str:
    """Return the type as the option has it."""
    return f"Decimal({kind.precision},{kind.scale})"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int",
        "decimal(0, 0)",
        "decimal(39, 2)",
        "decimal(3, 4)",
        "decimal(9)",
        "price",
        "price: text",
        "price decimal(9, 2)",
        "price: decimal(9, 2),",
        "price: decimal(9, 2) tax: decimal(9, 2)",
        "price: decimal(9, 2), price: decimal(8, 2)",
        "decimal(9, 2), decimal(8, 2)",
        ": decimal(9, 2)",
        '"price: decimal(9, 2)',
        '"": decimal(9, 2)',
    ],
)
def test_text_that_is_no_type(text: str) -> None:
    """Any other text is refused in one line."""
    with pytest.raises(ConfigurationError, match=r"^decimal_type is '.*': give 'string', or"):
        ValueTypes.parse(text)
