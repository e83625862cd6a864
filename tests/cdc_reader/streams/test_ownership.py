"""A shard owns the base rows whose streams belong to the shard."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.streams.generation import Generation, StreamGroup, stream_of
from cdc_reader.streams.ownership import Ownership
from cdc_reader.streams.ring import WHOLE_RING
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN, Shard
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window

ends = st.lists(st.integers(MIN_TOKEN + 1, MAX_TOKEN), min_size=1, max_size=6, unique=True)


def generation(range_ends: list[int], streams: int, seed: int) -> Generation:
    """Return a generation in which each group has up to `streams` streams in its own range."""
    draw, groups = random.Random(seed), []
    previous = max(range_ends)
    for end in sorted(range_ends):
        count, size = draw.randint(1, streams), (end - previous) % (1 << 64) or (1 << 64)
        found = [(previous + draw.randint(1, size) - MIN_TOKEN) % (1 << 64) for _ in range(count)]
        ids = (StreamId.from_parts(token + MIN_TOKEN, 1, 0) for token in found)
        groups.append(StreamGroup(end, tuple(ids)))
        previous = end
    return Generation(Window(BEGINNING, FOREVER), tuple(groups))


@given(ends, st.integers(1, 20), st.integers(1, 5), st.integers(), st.data())
def test_each_row_is_of_the_shard_of_its_stream(
    range_ends: list[int], streams: int, count: int, seed: int, data: st.DataObject
) -> None:
    """A shard reads and owns exactly the rows whose streams belong to the shard."""
    groups = generation(range_ends, streams, seed)
    drawn = data.draw(st.lists(st.integers(MIN_TOKEN + 1, MAX_TOKEN), min_size=1))
    tokens = [*drawn, *range_ends]
    for number in range(1, count + 1):
        shard = Shard(number, count)
        ownership = Ownership(groups.groups, shard)
        owned = ownership.owns(np.array(tokens, np.int64)).tolist()
        for token, is_owned in zip(tokens, owned, strict=True):
            is_read = any(token in span for span in ownership.spans)
            is_own = stream_of(groups, token).token in shard
            assert is_own == (is_read and is_owned)


def test_a_whole_ring_needs_no_tokens() -> None:
    """A single shard owns every row, so it needs no tokens."""
    ownership = Ownership(generation([0, 100], 3, 1).groups, Shard())
    assert ownership.is_exact
    assert ownership.spans == WHOLE_RING
    assert ownership.ends == (0, 100)


@pytest.mark.parametrize("count", [2, 3])
def test_without_a_generation_shards_split_the_ring(count: int) -> None:
    """Without a generation, the spans of the shards cover the ring exactly once."""
    spans = [Ownership((), Shard(number, count)).spans for number in range(1, count + 1)]
    assert sum(each.size for each in spans) == WHOLE_RING.size
    assert all(Ownership((), Shard(number, count)).is_exact for number in range(1, count + 1))
