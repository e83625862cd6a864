"""What the log may still hold, and the write time of its rows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.errors import SourceError
from cdc_reader.generation import StreamGroup
from cdc_reader.planner import Planner
from cdc_reader.timeuuid import MAX_MICROS, make
from pyspark_scylla_cdc.log import _commit_timestamps, oldest_alive

HOUR = 3_600_000_000


@frozen
class Starts:
    """A generation source that knows these starts only."""

    starts: tuple[int, ...]

    def timestamps(self) -> Sequence[int]:
        return self.starts

    def groups(self, start: int) -> Sequence[StreamGroup]:
        raise AssertionError(f"asked for the streams of {start}")


def oldest(starts: tuple[int, ...], *, ttl: int, now: int) -> int:
    """The oldest generation of these that may hold rows."""
    return oldest_alive(Planner(Starts(starts), 64), ttl, now)


def test_without_ttl_the_first_generation_counts() -> None:
    """Rows that never expire may be in any generation."""
    assert oldest((HOUR, 5 * HOUR), ttl=0, now=10**18) == HOUR


@pytest.mark.parametrize(
    ("now", "expected"),
    [(6 * HOUR, HOUR), (6 * HOUR + 4_999_999, HOUR), (6 * HOUR + 5_000_000, 5 * HOUR)],
)
def test_generations_die_with_their_last_row(now: int, expected: int) -> None:
    """A generation takes writes for 5 s after its end, and these live for the TTL."""
    assert oldest((HOUR, 5 * HOUR), ttl=3_600, now=now) == expected


def test_the_last_generation_never_dies() -> None:
    """It takes writes now, however old it is."""
    assert oldest((HOUR,), ttl=1, now=10**18) == HOUR


def test_no_generation() -> None:
    """A cluster that has published none yet is still starting; that is said."""
    with pytest.raises(SourceError, match="no CDC generation yet"):
        oldest((), ttl=1, now=0)


@given(st.lists(st.tuples(st.integers(0, MAX_MICROS // 2), st.binary(min_size=8, max_size=8))))
def test_commit_timestamps(times: list[tuple[int, bytes]]) -> None:
    """The write timestamp is recovered to the microsecond from ``cdc$time``."""
    texts = [str(uuid.UUID(bytes=make(micros, low).bytes)) for micros, low in times]
    found = _commit_timestamps(pa.array(texts, pa.string()))
    assert found.cast(pa.int64()).to_pylist() == [micros for micros, _ in times]
