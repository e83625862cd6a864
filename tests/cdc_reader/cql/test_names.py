from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.names import TableName, tables_or_patterns
from cdc_reader.errors import ConfigurationError
from cdc_reader.streams.stream import StreamId


def test_the_documented_stream_id_has_its_documented_parts() -> None:
    """A documented stream id, recorded from a real server, has the documented parts."""
    stream = StreamId(bytes.fromhex("ced00000000000009663c8dc500005a1"))
    parts = (stream.token, stream.random, stream.index, stream.version)
    assert parts == (-3544332906740580352, 161479800596, 90, 1)


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**38 - 1),
    st.integers(0, 2**22 - 1),
    st.integers(0, 15),
)
def test_an_id_of_parts_has_those_parts(token: int, random: int, index: int, version: int) -> None:
    """`from_parts` returns a stream id whose properties equal the given parts."""
    stream = StreamId.from_parts(token, random, index, version)
    assert (stream.token, stream.random, stream.index, stream.version) == (
        token, random, index, version,
    )  # fmt: skip


@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_its_bytes(raw: bytes) -> None:
    """A stream id compares and pickles like its bytes."""
    stream = StreamId(raw)
    assert stream == raw
    assert pickle.loads(pickle.dumps(stream)) == stream
    assert type(pickle.loads(pickle.dumps(stream))) is StreamId


@pytest.mark.parametrize("raw", [b"", bytes(15), bytes(17)])
def test_other_lengths_are_no_stream_ids(raw: bytes) -> None:
    """The error for a stream id of the wrong length shows the number of bytes."""
    with pytest.raises(ValueError, match=f"expected 16 bytes, found {len(raw)}"):
        StreamId(raw)


def test_parts_that_do_not_fit_are_refused() -> None:
    """Parts of a stream id that are too large are rejected instead of overflowing."""
    with pytest.raises(ValueError, match="out of range"):
        StreamId.from_parts(0, 0, 1 << 22)


def test_a_table_name_keeps_its_case_and_quotes_itself() -> None:
    """A table name keeps its case, quotes itself where needed, and returns the name of its log."""
    name = TableName("ks", 'My"T')
    assert name.log.name == 'My"T_scylla_cdc_log'
    assert name.log.is_log_name
    assert name.cql == '"ks"."My""T"'
    assert str(name) == 'ks.My"T'


@pytest.mark.parametrize(
    ("pattern", "matched", "other"),
    [
        ("shop.*", "shop.orders", "store.orders"),
        ("shop.order*", "shop.order", "shop.my_orders"),
        ("shop.*_v*", "shop.a_v1", "shop.a_w1"),
        ('"Odd"."*"', '"Odd"."My_Table"', "odd.t"),
        ('shop."Or*"', 'shop."Orders"', "shop.orders"),
    ],
)
def test_a_pattern_stands_for_tables_of_one_keyspace(
    pattern: str, matched: str, other: str
) -> None:
    """A ``*`` stands for any characters, in the name of the table only; case matters."""
    parsed, found, left = map(TableName.parse, (pattern, matched, other))
    assert parsed.is_pattern
    assert not found.is_pattern
    assert parsed.matches(found)
    assert not parsed.matches(left)


def test_a_pattern_names_one_keyspace() -> None:
    """A pattern for keyspaces is refused, and a name may be given beside a pattern."""
    assert len(tables_or_patterns(["shop.*", "shop.orders", "shop.*"])) == 2
    with pytest.raises(ConfigurationError, match=r"tables is 's\*\.t': name one keyspace"):
        tables_or_patterns("s*.t")
