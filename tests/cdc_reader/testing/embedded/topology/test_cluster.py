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


@pytest.mark.parametrize("counts", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_counts_below_one_are_refused(counts: tuple[int, int, int]) -> None:
    """The numbers of nodes, vnodes and shards must be at least 1."""
    nodes, vnodes, shards = counts
    with pytest.raises(ValueError, match="expected at least 1 of each"):
        draw_nodes(random.Random(1), ["127.0.0.1"] * nodes, vnodes, shards)
