"""The simulated cluster: its nodes, its ring, the generations it goes through."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from uuid import UUID

from attrs import define

from cdc_reader.testing.embedded.topology.generation import Generation
from cdc_reader.testing.embedded.topology.ring import Node, Ring, draw_tokens
from cdc_reader.testing.embedded.topology.streams import Streams

RING_DELAY_MS = 30_000
GENERATION_DELAY_MS = 5_000


def draw_nodes(
    source: random.Random, addresses: Sequence[str], vnodes: int, shards: int
) -> tuple[Node, ...]:
    """Nodes with random tokens, one per address. ValueError for counts below one."""
    if min(len(addresses), vnodes, shards) < 1:
        raise ValueError(
            f"{len(addresses)} nodes, {vnodes} vnodes, {shards} shards: expected at least 1 of each"
        )
    tokens = draw_tokens(source, vnodes * len(addresses))
    return tuple(
        Node(_host_id(source), tokens[index :: len(addresses)], shards, address)
        for index, address in enumerate(addresses)
    )


@define
class Cluster:
    """Nodes that share one store, and the generations published so far.

    `publish` is told of each new generation, as the server announces it ahead of its time.
    With a `ring_delay_ms` of 0 a generation operates at once, as in the server.
    """

    name: str
    ring: Ring
    streams: Streams
    source: random.Random
    publish: Callable[[Generation], None]
    ring_delay_ms: int = RING_DELAY_MS

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.ring.nodes

    @property
    def generations(self) -> tuple[Generation, ...]:
        """All generations, oldest first, the newest perhaps not operating yet."""
        return tuple(self.streams.generations)

    def start(self, now_us: int) -> Generation:
        """Make the first generation, in force from now on."""
        return self._new_generation(now_us // 1000)

    def join(self, now_us: int, vnodes: int, shards: int) -> Generation:
        """Add a node that no client can reach, and make the generation that comes with it."""
        tokens = draw_tokens(self.source, vnodes, taken=self.ring.tokens)
        return self.join_node(now_us, Node(_host_id(self.source), tokens, shards))

    def join_node(self, now_us: int, node: Node) -> Generation:
        """Add this node, and make the generation that comes with it."""
        self.ring = Ring((*self.ring.nodes, node))
        return self._later_generation(now_us)

    def leave(self, node: Node) -> None:
        """Take a node off the ring: no new generation, until the streams are repaired."""
        self.ring = Ring(tuple(n for n in self.ring.nodes if n is not node))

    def check_and_repair(self, now_us: int) -> Generation | None:
        """Make a new generation if the newest does not fit the ring; None if it does."""
        if self.generations and self.generations[-1].is_optimal_for(self.ring):
            return None
        return self._later_generation(now_us)

    def _later_generation(self, now_us: int) -> Generation:
        delay = 2 * self.ring_delay_ms + GENERATION_DELAY_MS if self.ring_delay_ms else 0
        timestamp = now_us // 1000 + delay
        if self.generations:
            timestamp = max(timestamp, self.generations[-1].timestamp + 1)
        return self._new_generation(timestamp)

    def _new_generation(self, timestamp: int) -> Generation:
        generation = Generation.of(self.ring, timestamp, self.source)
        self.streams.add(generation)
        self.publish(generation)
        return generation


def _host_id(source: random.Random) -> UUID:
    return UUID(int=source.getrandbits(128), version=4)
