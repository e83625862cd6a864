"""Nodes and the token ranges they own."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from uuid import UUID

from attrs import frozen

from cdc_reader.testing.embedded.codec.token import MAX_TOKEN, MIN_TOKEN

IGNORE_MSB = 12


@frozen
class Node:
    """A node that owns the ranges ending at `tokens`; without an address, it is unreachable."""

    host_id: UUID
    tokens: tuple[int, ...]
    shards: int
    address: str | None = None
    ignore_msb: int = IGNORE_MSB
    data_center: str = "datacenter1"
    rack: str = "rack1"


@frozen
class Vnode:
    """The token range (start, end], which wraps around if start >= end."""

    start: int
    end: int
    owner: Node


@frozen(slots=False)
class Ring:
    """The token ring: the sorted tokens of all nodes.

    Raises ValueError if there are no tokens, or if two tokens are equal.
    """

    nodes: tuple[Node, ...]

    def __attrs_post_init__(self) -> None:
        if not self.tokens:
            raise ValueError("a ring without tokens: expected at least one node with one token")
        if len(set(self.tokens)) != len(self.tokens):
            raise ValueError("a token with two owners: expected the tokens of a ring to differ")

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for token, _ in self._owners)

    @cached_property
    def _owners(self) -> Sequence[tuple[int, Node]]:
        pairs = ((token, node) for node in self.nodes for token in node.tokens)
        return sorted(pairs, key=lambda pair: pair[0])

    def vnodes(self) -> Iterator[Vnode]:
        """Yield the token ranges in order; the first one wraps around."""
        start = self.tokens[-1]
        for end, owner in self._owners:
            yield Vnode(start, end, owner)
            start = end

    def owner(self, token: int) -> Node:
        """Return the node that owns a token."""
        index = bisect_left(self.tokens, token)
        return self._owners[index % len(self._owners)][1]


def draw_tokens(source: random.Random, count: int, taken: Sequence[int] = ()) -> tuple[int, ...]:
    """Return `count` random tokens, distinct and not in `taken`."""
    known = frozenset(taken)
    drawn: dict[int, None] = {}
    while len(drawn) < count:
        token = source.randint(MIN_TOKEN + 1, MAX_TOKEN)
        if token not in known:
            drawn[token] = None
    return tuple(drawn)
