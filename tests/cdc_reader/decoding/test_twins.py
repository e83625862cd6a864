"""Both kernels produce the same results for all schemas and all kinds of damage."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import ListType, MapType, Native, UserType
from cdc_reader.errors import DecodeError
from tests.cdc_reader.decoding.conftest import Decode
from tests.cdc_reader.decoding.schemas import Table, damaged, tables
from tests.cdc_reader.decoding.test_recorded_frames import BODIES
from tests.cdc_reader.decoding.wire import body_of, cells, column_of, integer

ALL_BODIES = [body for bodies in BODIES.values() for body in bodies]


def outcome(
    decode: Decode, body: bytes, columns: Sequence[Column] | None
) -> tuple[pa.Schema, str] | str:
    """Return the schema and all values as text, or the message of the DecodeError.

    Values are text because NaN does not equal itself, and Arrow has dates that Python lacks.
    """
    try:
        batch = decode(body, columns)
    except DecodeError as error:
        return str(error)
    batch.validate(full=True)
    return batch.schema, "\n".join(array.to_string(window=2**31 - 1) for array in batch.columns)


@given(tables())
def test_rows_of_any_schema_are_what_was_encoded(decode: Decode, table: Table) -> None:
    """Rows of any schema decode to the encoded values, with nested types and nulls."""
    batch = decode(table.body, table.columns)
    batch.validate(full=True)
    assert batch.to_pylist() == table.told


@given(st.data())
def test_damaged_rows_are_the_same_to_both(
    twins: tuple[Decode, Decode], data: st.DataObject
) -> None:
    """Both kernels return the same rows for damaged bytes, or raise the same error."""
    table = data.draw(tables(max_rows=3))
    body = data.draw(damaged(table.body))
    compiled, plain = (outcome(decode, body, table.columns) for decode in twins)
    assert compiled == plain


@given(st.data())
def test_damaged_recordings_are_the_same_to_both(
    twins: tuple[Decode, Decode], data: st.DataObject
) -> None:
    """Both kernels agree on damaged recordings, whose metadata may be damaged too."""
    body = data.draw(damaged(data.draw(st.sampled_from(ALL_BODIES))))
    compiled, plain = (outcome(decode, body, None) for decode in twins)
    assert compiled == plain


@given(st.binary(max_size=80), tables(max_rows=1))
def test_any_bytes_are_the_same_to_both(
    twins: tuple[Decode, Decode], cell: bytes, table: Table
) -> None:
    """Both kernels agree on random bytes, decoded as a value of any type."""
    columns = table.columns[:1]
    compiled, plain = (outcome(decode, column_of(cell, None, cell), columns) for decode in twins)
    assert compiled == plain


@given(st.binary(max_size=70))
def test_numbers_with_needless_bytes_are_the_same_to_both(
    twins: tuple[Decode, Decode], raw: bytes
) -> None:
    """Both kernels agree on numbers with redundant leading bytes, which a server may send."""
    columns = [Column("v", Native("varint")), Column("d", Native("decimal"))]
    padded = [lead * count + raw for lead in (b"\0", b"\xff") for count in (0, 4, 9)]
    body = body_of(*([cell, bytes(3) + b"\x02" + (cell or b"\0")] for cell in padded))
    compiled, plain = (outcome(decode, body, columns) for decode in twins)
    assert compiled == plain


@pytest.mark.parametrize("depth", [30, 31])
def test_types_nested_to_the_limit_are_decoded(decode: Decode, depth: int) -> None:
    """Types nested up to Arrow's limit are decoded. Decoding deeper types raises a DecodeError.

    Maps use more of Arrow's levels than other types.
    """
    metadata = b"\0\x21\0\x09" * depth + b"\0\x09"
    header = b"\0\0\0\x02\0\0\0\x01\0\0\0\x01" + b"\0\2ks\0\1t" + b"\0\1v"
    body = header + metadata + b"\0\0\0\1" + b"\xff\xff\xff\xff"
    if depth == 31:
        with pytest.raises(DecodeError, match="nested deeper than 30"):
            decode(body)
    else:
        assert decode(body).to_pylist() == [{"v": None}]


def test_names_keep_every_character(decode: Decode) -> None:
    """Names keep every character, even NUL, which ends C strings."""
    columns = [Column("a\0b", UserType("ks", "u", (("x\0y", Native("int")),)))]
    assert decode(column_of(cells(integer(1))), columns).to_pylist() == [{"a\0b": {"x\0y": 1}}]


def test_a_page_is_freed_with_its_batch(decode: Decode) -> None:
    """A page stays in memory as long as its batch or any of its columns exists."""
    column = Column("v", ListType(MapType(Native("int"), Native("text"))))
    [kept] = decode(column_of(None, b"\0\0\0\0"), [column]).columns
    assert kept.to_pylist() == [None, []]
