"""A node's clock, which may be ahead of or behind the cluster's."""

from __future__ import annotations

from typing import Protocol

from attrs import define


class Now(Protocol):
    """A source of time: the system clock, or `cdc_reader.testing.clock.ManualClock`."""

    def now(self) -> int:
        """Return the time, in µs since 1970."""
        ...


@define
class NodeClock:
    """A clock that is `ahead` µs ahead of the cluster's; a negative `ahead` means behind."""

    cluster: Now
    ahead: int = 0

    def now(self) -> int:
        """Return this node's time, in µs since 1970."""
        return self.cluster.now() + self.ahead
