"""The generations that may still contain unexpired rows."""

from __future__ import annotations

import pytest

from cdc_reader.errors import SourceError
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.streams.generation import Timeline
from pyspark_scylla_cdc.log_plan import oldest_alive

HOUR = 3_600_000_000


def oldest(starts: tuple[int, ...], *, ttl: int, now: int) -> int:
    """Return the start of the oldest of these generations that may contain rows."""
    return oldest_alive(Timeline(starts), TtlHistory([(0, ttl)]).kept_since(now))


def test_without_ttl_the_first_generation_counts() -> None:
    """Rows that never expire may be in any generation."""
    assert oldest((HOUR, 5 * HOUR), ttl=0, now=10**18) == HOUR


@pytest.mark.parametrize(
    ("now", "expected"),
    [(6 * HOUR, HOUR), (6 * HOUR + 4_999_999, HOUR), (6 * HOUR + 5_000_000, 5 * HOUR)],
)
def test_generations_die_with_their_last_row(now: int, expected: int) -> None:
    """A generation may contain rows until the TTL and 5 s have passed since its end.

    It accepts writes until 5 s after its end.
    """
    assert oldest((HOUR, 5 * HOUR), ttl=3_600, now=now) == expected


def test_the_last_generation_never_dies() -> None:
    """The last generation accepts writes, whatever its age."""
    assert oldest((HOUR,), ttl=1, now=10**18) == HOUR


def test_no_generation() -> None:
    """The error says that the cluster has not published a generation yet."""
    with pytest.raises(SourceError, match="not published a CDC generation yet"):
        oldest((), ttl=1, now=0)
