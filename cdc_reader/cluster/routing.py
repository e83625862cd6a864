"""Chooses the node, and the shard, to which a query for streams of a log is sent.

A driver computes the token of a partition key with the default partitioner. A log has its own
partitioner, so this module makes a key whose default token equals the stream's token.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain
from typing import Any

from attrs import frozen
from cassandra.policies import DCAwareRoundRobinPolicy, HostDistance
from cassandra.query import BoundStatement

from cdc_reader.cluster.queries import Route

_WORD = 1 << 64

_FIRST, _SECOND = 0x87C37B91114253D5, 0x4CF5AD432745937F

_MIX_FIRST, _MIX_SECOND = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53

_FARTHEST = 1_000
"""The maximum number of ranges in which to search for an owner in the local datacenter."""


def key_of_token(token: int) -> bytes:
    """Return a 16-byte key whose token under the default partitioner is `token`.

    The driver computes a statement's token from its key with the default partitioner, while a log's
    partitioner takes the token from the stream's id. With this key the driver computes the stream's
    token. Many keys have that token; any of them works.
    """
    mixed = _unmix(token % _WORD)
    first, second = (2 * mixed % _WORD) ^ 16, (-mixed % _WORD) ^ 16
    low = _rotate(_divide(first - 0x52DCE729, 5), -27)
    high = _rotate(_divide(second - 0x38495AB5, 5) - first, -31)
    words = (
        _divide(_rotate(_divide(low, _SECOND), -31), _FIRST),
        _divide(_rotate(_divide(high, _FIRST), -33), _SECOND),
    )
    return b"".join(word.to_bytes(8, "little") for word in words)


def _unmix(word: int) -> int:
    """Invert Murmur3's finalizer: return the word that it maps to `word`."""
    word ^= word >> 33  # this step is its own inverse
    word = _divide(word, _MIX_SECOND)
    word ^= word >> 33
    word = _divide(word, _MIX_FIRST)
    return word ^ word >> 33


def _divide(product: int, odd: int) -> int:
    """Return the word that, multiplied by `odd` modulo 2^64, gives `product`."""
    return product * _inverse(odd) % _WORD


@functools.cache
def _inverse(odd: int) -> int:
    return pow(odd, -1, _WORD)


def _rotate(word: int, left: int) -> int:
    word, left = word % _WORD, left % 64
    return (word << left | word >> (64 - left)) % _WORD


class RoutedStatement(BoundStatement):  # type: ignore[misc]
    """A bound statement that may contain the location of its rows.

    `OwnerFirst` reads `token`. The driver itself reads `routing_key`: scylla-driver uses it to
    choose the shard, and also the node if the table uses tablets.
    """

    token: int | None = None
    routing_key: bytes | None = None

    def to_owner(self, route: Route) -> None:
        """Send the statement to a node that has the rows; for an exact route, also to the shard."""
        self.token = route.token
        self.routing_key = key_of_token(route.token) if route.is_exact else None

    def to_any_node(self) -> None:
        """From now on, send the statement to the nodes in turn, because the chosen node failed."""
        self.token = self.routing_key = None


@frozen
class Ring:
    """The tokens of a cluster, in order, and their owners."""

    source: Any
    """The driver's token map; the driver replaces it when nodes join or leave."""
    tokens: tuple[int, ...]
    owners: tuple[Any, ...]

    @classmethod
    def of(cls, source: Any) -> Ring:
        """Make the ring from a driver's token map; the ring is empty if there is no map."""
        places = () if source is None else source.ring
        owners = tuple(source.token_to_host_owner[place] for place in places)
        return cls(source, tuple(place.value for place in places), owners)

    def owners_from(self, token: int) -> Iterator[Any]:
        """Yield the owners of the token's range and of each later range, once around the ring."""
        at, count = bisect_left(self.tokens, token), len(self.owners)
        return (self.owners[place % count] for place in range(at, at + min(count, _FARTHEST)))


class OwnerFirst(DCAwareRoundRobinPolicy):  # type: ignore[misc]
    """A load-balancing policy: first the owner of a statement's token, then all nodes in turn."""

    _ring = Ring.of(None)

    def populate(self, cluster: Any, hosts: Any) -> None:
        self._metadata = cluster.metadata
        super().populate(cluster, hosts)

    def make_query_plan(self, working_keyspace: Any = None, query: Any = None) -> Iterator[Any]:
        plan: Iterator[Any] = super().make_query_plan(working_keyspace, query)
        token = getattr(query, "token", None)
        owner = None if token is None else self._owner(token)
        if owner is None:
            return plan
        return chain([owner], (host for host in plan if host is not owner))

    def _owner(self, token: int) -> Any:
        """Return the first local owner from the token on; None if there is none or it is down.

        With vnodes, that node is a replica in each keyspace that has replicas in this datacenter.
        """
        if self._ring.source is not self._metadata.token_map:
            self._ring = Ring.of(self._metadata.token_map)
        near = (h for h in self._ring.owners_from(token) if self.distance(h) == HostDistance.LOCAL)
        owner = next(near, None)
        return owner if owner is not None and owner.is_up else None
