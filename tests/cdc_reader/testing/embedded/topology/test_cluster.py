"""Tests a cluster's generations at its start, after joins and leaves, and after repairs."""

import random

import pytest

from cdc_reader.testing.embedded.topology.cluster import Cluster, draw_nodes
from cdc_reader.testing.embedded.topology.generation import Generation
from cdc_reader.testing.embedded.topology.ring import Ring
from cdc_reader.testing.embedded.topology.streams import Streams

NOW = 1_795_220_000_000_000


def cluster(published: list[Generation], ring_delay_ms: int = 30_000) -> Cluster:
    """Return a two-node cluster that has started."""
    source = random.Random(1)
    nodes = draw_nodes(source, ["127.0.0.1", "127.0.0.2"], vnodes=4, shards=2)
    made = Cluster("c", Ring(nodes), Streams(), source, published.append, ring_delay_ms)
    made.start(NOW)
    return made


def test_the_first_generation_operates_at_once() -> None:
    """The first generation starts at once, covers all token ranges, and is published."""
    published: list[Generation] = []
    made = cluster(published)
    assert published == list(made.generations)
    assert published[0].timestamp == NOW // 1000
    assert published[0].range_ends == made.ring.tokens
    assert [len(span.streams) for span in published[0].ranges] == [2] * 8


def test_a_joining_node_makes_a_generation_that_starts_later() -> None:
    """The new generation starts two ring delays plus 5 s later, or at once without a ring delay."""
    made = cluster([])
    generation = made.join(NOW, made.new_node(vnodes=3, shards=5))
    assert generation.timestamp == NOW // 1000 + 65_000
    assert generation.range_ends == made.ring.tokens
    assert sorted(len(span.streams) for span in generation.ranges) == [2] * 8 + [5] * 3
    hasty = cluster([], ring_delay_ms=0)
    assert hasty.join(NOW, hasty.new_node(1, 1)).timestamp == NOW // 1000 + 1


def test_no_later_generation_begins_before_it_is_made() -> None:
    """Without a ring delay, a generation starts at the next millisecond.

    Writes in the current millisecond may already be in the previous generation's streams.
    """
    hasty = cluster([], ring_delay_ms=0)
    made = NOW + 5_001
    assert hasty.join(made, hasty.new_node(1, 1)).timestamp * 1000 == NOW + 6_000
    assert hasty.later_timestamp(made, previous=0) * 1000 == NOW + 6_000


def test_a_leaving_node_makes_none_until_the_streams_are_repaired() -> None:
    """Neither a leaving node nor an unnecessary repair of the streams creates a generation."""
    published: list[Generation] = []
    made = cluster(published)
    assert made.check_and_repair(NOW) is None
    made.leave(made.nodes[0])
    assert len(published) == 1
    repaired = made.check_and_repair(NOW)
    assert repaired is published[1]
    assert repaired.range_ends == made.ring.tokens


@pytest.mark.parametrize("counts", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_counts_below_one_are_refused(counts: tuple[int, int, int]) -> None:
    """The numbers of nodes, vnodes and shards must be at least 1."""
    nodes, vnodes, shards = counts
    with pytest.raises(ValueError, match="expected at least 1 of each"):
        draw_nodes(random.Random(1), ["127.0.0.1"] * nodes, vnodes, shards)
