"""Chunks adapt to their page counts: full chunks are split, and adjacent idle ones are merged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.reading.windows.planner import Chunking


@given(st.integers(0, 50), st.integers(1, 9), st.lists(st.lists(st.floats(0, 9)), max_size=6))
def test_adapting_keeps_items_order_and_limit(
    count: int, limit: int, held: list[list[float]]
) -> None:
    """Adapting keeps all items, in order. No chunk is empty or above the limit."""
    chunking = Chunking(range(count), limit)
    for pages in held:
        chunking.adapt([*pages, *[0.0] * len(chunking)][: len(chunking)])
        chunks = list(chunking)
        assert [item for chunk in chunks for item in chunk] == list(range(count))
        assert all(0 < len(chunk) <= limit for chunk in chunks)


def test_a_hot_chunk_is_split_down_to_its_streams_and_joined_when_it_cools() -> None:
    """Chunks of busy streams are split until they have one stream each. Idle chunks are merged."""
    chunking = Chunking(range(64), 64)
    for _ in range(6):
        chunking.adapt([9.0] * len(chunking))
    assert len(chunking) == 64
    for _ in range(7):
        chunking.adapt([0.0] * len(chunking))
    assert list(chunking) == [tuple(range(64))]
