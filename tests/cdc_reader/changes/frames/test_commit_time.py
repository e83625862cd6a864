"""Times and versions of changes, derived from time UUIDs."""

from __future__ import annotations

import uuid

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.changes.frames.commit_time import commit_timestamps, commit_versions
from cdc_reader.cql.timeuuid import MAX_MICROS, make, order_key

TIMES = st.lists(
    st.builds(make, st.integers(0, MAX_MICROS // 2), st.binary(min_size=8, max_size=8)), max_size=9
)


def column(times: list[uuid.UUID]) -> pa.Array:
    """Return the times in the kernel's text form, as a slice of a longer column."""
    around = [uuid.UUID(int=0)]
    return pa.array([*map(str, [*around, *times, *around])])[1:-1]


@given(TIMES)
def test_commit_timestamps(times: list[uuid.UUID]) -> None:
    """The write timestamp is exact to the microsecond."""
    found = commit_timestamps(column(times)).cast(pa.int64()).to_pylist()
    assert [
        make(micros, time.bytes[8:]) for micros, time in zip(found, times, strict=True)
    ] == times


@given(TIMES, TIMES)
def test_versions_sort_as_the_server_sorts(times: list[uuid.UUID], others: list[uuid.UUID]) -> None:
    """Versions, compared as text, sort like the time UUIDs, even within one microsecond."""
    pairs = zip(times, others, strict=False)
    mixed = [uuid.UUID(bytes=one.bytes[:8] + two.bytes[8:]) for one, two in pairs]
    every = times + others + mixed
    versions = dict(zip(every, commit_versions(column(every)).to_pylist(), strict=True))
    assert sorted(every, key=lambda time: order_key(time.bytes)) == sorted(
        every, key=versions.__getitem__
    )
    assert len(set(versions.values())) == len(set(every))
