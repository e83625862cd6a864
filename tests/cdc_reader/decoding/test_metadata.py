"""Result metadata: columns are parsed once and shared by pages with the same metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import Native
from cdc_reader.decoding import ResultMetadata, metadata, parse_metadata
from cdc_reader.errors import DecodeError
from tests.cdc_reader.decoding.schemas import damaged
from tests.cdc_reader.decoding.test_twins import ALL_BODIES
from tests.cdc_reader.decoding.wire import integer


def outcome(body: bytes) -> ResultMetadata | str:
    """Return the metadata, or the message of the DecodeError."""
    try:
        return parse_metadata(body)
    except DecodeError as error:
        return str(error)


def head(body: bytes) -> bytes:
    """Return the part of a result body that precedes the rows."""
    return body[: parse_metadata(body).rows_offset]


def unprepared(body: bytes) -> ResultMetadata | str:
    """Return the `outcome` of a parse with an empty cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata, "_parsed", {})
        return outcome(body)


@given(st.lists(st.sampled_from(ALL_BODIES), min_size=1, max_size=3), st.data())
def test_earlier_pages_do_not_affect_parsing(before: list[bytes], data: st.DataObject) -> None:
    """Earlier pages do not affect parsing, even if bodies have the same beginning."""
    body = data.draw(damaged(head(data.draw(st.sampled_from(before)))))
    for other in before:
        outcome(other)
    assert outcome(body) == unprepared(body)


def test_cached_metadata_does_not_hide_truncation() -> None:
    """A truncated body never matches the cached metadata of a whole one."""
    longest = max(map(head, ALL_BODIES), key=len)
    for length in range(len(longest)):
        assert outcome(longest[:length]) == unprepared(longest[:length])
    assert outcome(longest) == unprepared(longest)


def test_pages_of_a_query_share_their_columns() -> None:
    """Pages of a query share one object for their columns, which makes lookups fast."""
    first, again = (parse_metadata(bytes(bytearray(ALL_BODIES[0]))) for _ in range(2))
    assert first.columns
    assert first.columns is again.columns


def test_the_cache_of_metadata_is_bounded() -> None:
    """The metadata cache has a limited number of entries and a limited total size."""
    for number in range(300):
        table, column = f"t{number}", "c" * min(number * 300, 65535)
        strings = b"".join(
            len(text).to_bytes(2, "big") + text.encode() for text in ("ks", table, column)
        )
        found = parse_metadata(integer(2) + integer(1) + integer(1) + strings + b"\0\x09")
        assert found.columns == (Column(column, Native("int")),)
    kept = [len(described) for described, _ in metadata._parsed.values()]
    assert 0 < len(kept) <= 128
    assert max(kept) <= 1 << 16


def test_a_new_metadata_id_is_returned() -> None:
    """A new metadata id is returned.

    The driver sends the id with the next execution, and the server then omits the metadata.
    """
    strings = b"".join(len(text).to_bytes(2, "big") + text for text in (b"ks", b"t", b"c"))
    found = parse_metadata(
        integer(2) + integer(1 | 8) + integer(1) + b"\0\3new" + strings + b"\0\x09"
    )
    assert found.metadata_id == b"new"
    assert found.columns == (Column("c", Native("int")),)
    assert parse_metadata(ALL_BODIES[0]).metadata_id is None
