"""The simulated cluster: its nodes, ring and generations."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from uuid import UUID

from attrs import define, evolve

from cdc_reader.testing.embedded.topology.generation import Generation
from cdc_reader.testing.embedded.topology.ring import Node, Ring, draw_tokens
from cdc_reader.testing.embedded.topology.streams import Streams

RING_DELAY_MS = 30_000
GENERATION_DELAY_MS = 5_000


def draw_nodes(
    source: random.Random, addresses: Sequence[str], vnodes: int, shards: int
) -> tuple[Node, ...]:
    """Create a node for each address, with random tokens; raise ValueError for counts below 1."""
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
    """Nodes that share one store, and the generations so far.

    `publish` is called with each new generation when it is created. With a `ring_delay_ms` of 0, a
    generation starts at once, as in ScyllaDB. The first generation always starts at once, unless
    `first_waits` is True. With `marks_rewritten`, nodes report that they have copied the
    generations that ScyllaDB 4.3 created.
    """

    name: str
    ring: Ring
    streams: Streams
    source: random.Random
    publish: Callable[[Generation], None]
    ring_delay_ms: int = RING_DELAY_MS
    first_waits: bool = False
    marks_rewritten: bool = True

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.ring.nodes

    @property
    def generations(self) -> tuple[Generation, ...]:
        """All generations, oldest first; the newest may start in the future."""
        return tuple(self.streams.generations)

    @property
    def delay_ms(self) -> int:
        """The time in ms between the creation and the start of a generation or stream set."""
        return 2 * self.ring_delay_ms + GENERATION_DELAY_MS if self.ring_delay_ms else 0

    def copy(self) -> Cluster:
        """Return a copy, which later changes of the ring and the generations leave as it is."""
        return evolve(self, streams=evolve(self.streams, generations=list(self.generations)))

    def start(self, now_us: int) -> Generation:
        """Create the first generation."""
        return self._new_generation(now_us // 1000 + self.delay_ms * self.first_waits)

    def new_node(self, vnodes: int, shards: int, address: str | None = None) -> Node:
        """Create a node that has not joined yet; its tokens differ from all tokens in the ring."""
        tokens = draw_tokens(self.source, vnodes, taken=self.ring.tokens)
        return Node(_host_id(self.source), tokens, shards, address)

    def join(self, now_us: int, node: Node) -> Generation:
        """Add a node; create and return the resulting generation."""
        self.ring = Ring((*self.ring.nodes, node))
        return self._later_generation(now_us)

    def leave(self, node: Node) -> None:
        """Remove a node from the ring; the streams do not change until `check_and_repair`."""
        self.ring = Ring(tuple(n for n in self.ring.nodes if n is not node))

    def check_and_repair(self, now_us: int) -> Generation | None:
        """Create and return a generation, or return None if the newest one matches the ring."""
        if self.generations and self.generations[-1].is_optimal_for(self.ring):
            return None
        return self._later_generation(now_us)

    def add_empty_generation(self, now_us: int) -> Generation:
        """Create a generation without streams, which rejects all writes."""
        return self._add(Generation.empty(self._later(now_us), self.source))

    def later_timestamp(self, now_us: int, previous: int) -> int:
        """Return the start (ms) of a generation created now, after one that starts at `previous`.

        The start is rounded up, because writes in the current millisecond may already be in the
        earlier streams.
        """
        return max(-(-now_us // 1000) + self.delay_ms, previous + 1)

    def _later_generation(self, now_us: int) -> Generation:
        return self._new_generation(self._later(now_us))

    def _later(self, now_us: int) -> int:
        return self.later_timestamp(now_us, self.generations[-1].timestamp)

    def _new_generation(self, timestamp: int) -> Generation:
        return self._add(Generation.of(self.ring, timestamp, self.source))

    def _add(self, generation: Generation) -> Generation:
        self.streams.add(generation)
        self.publish(generation)
        return generation


def _host_id(source: random.Random) -> UUID:
    return UUID(int=source.getrandbits(128), version=4)
