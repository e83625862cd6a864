"""The clock of a node, which may differ from the cluster's."""

from __future__ import annotations

from typing import Protocol

from attrs import define


class Now(Protocol):
    """A source of time: the system's clock, or `cdc_reader.testing.clock.ManualClock`."""

    def now(self) -> int:
        """Return the time, in µs since 1970."""
        ...


@define
class NodeClock:
    """The cluster's time plus `ahead` µs; negative for a clock that is behind."""

    cluster: Now
    ahead: int = 0

    def now(self) -> int:
        """Return this node's time, in µs since 1970."""
        return self.cluster.now() + self.ahead
