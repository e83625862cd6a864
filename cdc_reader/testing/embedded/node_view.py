"""What a node knows of the cluster, which may be less than what has happened.

While no node lags, nothing is copied. From the moment when the first node begins to lag, the small
state in which nodes can differ is copied after each change of it. A node that lags shows the newest
copy that has reached it. A node never forgets what it knows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import TypeVar
from uuid import UUID

from attrs import define, field, frozen

from cdc_reader.testing.embedded.errors import ServerError
from cdc_reader.testing.embedded.protocol.responses import Answer
from cdc_reader.testing.embedded.query.ports import TableSource
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.storage.database import Database
from cdc_reader.testing.embedded.system.definitions import DISTRIBUTED
from cdc_reader.testing.embedded.topology.cluster import Cluster
from cdc_reader.testing.embedded.topology.ring import Node
from cdc_reader.testing.embedded.topology.tablets import StreamHistory

T = TypeVar("T")


@frozen(eq=False)
class State:
    """The state in which nodes may differ: the cluster's own, or a copy that does not change.

    It contains the schema, the ring and its generations, the streams of tables with tablets, the
    schema version of each node, and the rows of `system_distributed` as a single replica has them.
    """

    catalog: Catalog
    cluster: Cluster
    tablets: Callable[[], tuple[StreamHistory, ...]]
    version_of: Callable[[Node], UUID]
    replica: Database

    def copy(self) -> State:
        """Return a copy, in which all nodes have the same schema version."""
        catalog, tablets = self.catalog.copy(), self.tablets()
        replica = self.replica.copy(catalog.keyspaces[DISTRIBUTED].tables.values())
        version = catalog.version
        return State(catalog, self.cluster.copy(), lambda: tablets, lambda _: version, replica)

    def replicas(self) -> Mapping[tuple[str, str], TableSource]:
        """Return the sources of the tables that a node reads from its own replica at ONE."""
        names = self.catalog.keyspaces[DISTRIBUTED].tables
        return dict.fromkeys(((DISTRIBUTED, name) for name in names), self.replica)


@define(eq=False)
class Past:
    """Copies of the states since the first of the nodes that lag began to lag; none if none lags.

    `now` returns the cluster's time in µs. States are numbered in the order in which they appeared.
    """

    present: State
    now: Callable[[], int]
    _lagging: set[NodeView] = field(factory=set, init=False)
    _oldest: int = field(default=0, init=False)
    _times: list[int] = field(factory=list, init=False)
    _states: list[State] = field(factory=list, init=False)

    @property
    def newest(self) -> int:
        """The number of the current state."""
        return self._oldest + len(self._states) - 1

    def record(self) -> None:
        """Copy the state after a change of it, if any node lags; discard what all nodes know."""
        if self._lagging:
            self._append()
            passed = min(view.number for view in self._lagging) - self._oldest
            del self._times[:passed], self._states[:passed]
            self._oldest += passed

    def begin(self, view: NodeView) -> None:
        """Keep the states from the current one on, for a node that begins to lag."""
        if not self._lagging:
            self._append()
        self._lagging.add(view)

    def end(self, view: NodeView) -> None:
        """Discard the states if no other node lags."""
        self._lagging.discard(view)
        if not self._lagging:
            self._times.clear()
            self._states.clear()

    def state(self, number: int) -> State:
        return self._states[number - self._oldest]

    def number_at(self, moment: int) -> int:
        """Return the number of the state at a moment (µs); less than all if it is not kept."""
        return self._oldest + bisect_right(self._times, moment) - 1

    def _append(self) -> None:
        state = self.present.copy()
        self._times.append(self.now())
        self._states.append(state)


@define(eq=False)
class NodeView:
    """What a node that lags knows: the state with the number `known`.

    The node learns of each change `behind` µs after it happened; if `behind` is None, the node is
    frozen, and learns of none. `show` makes the node's engine show a state of the view. `tell`
    sends an event to the node's clients, which hear of a change when the node does: with the first
    request that the node answers afterwards.
    """

    behind: int | None
    _past: Past
    _show: Callable[[NodeView, State], None]
    _tell: Callable[[str, Answer], None]
    known: int = field(init=False)
    _shown: State | None = field(default=None, init=False)
    _untold: list[tuple[int, str, Answer]] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._past.begin(self)
        self.known = self._past.newest

    @property
    def number(self) -> int:
        """The number of the state that the node knows now."""
        if self.behind is not None:
            self.known = max(self.known, self._past.number_at(self._past.now() - self.behind))
        return self.known

    @property
    def state(self) -> State:
        """What the node knows now."""
        self._past.present.tablets()  # discards sets that have expired, which is a change
        return self._past.state(self.number)

    def refresh(self) -> None:
        """Make the engine show what the node knows now, and tell clients of what is new to it."""
        state = self.state
        if state is not self._shown:
            self._shown = state
            self._show(self, state)
        while self._untold and self._untold[0][0] <= self.known:
            _, kind, event = self._untold.pop(0)
            self._tell(kind, event)

    def tell_later(self, kind: str, event: Answer) -> None:
        """Keep the event of the current state until the node knows this state."""
        self._untold.append((self._past.newest, kind, event))

    def alter(self, change: Callable[[Catalog], T]) -> T:
        """Change the cluster's catalog through this node, which then knows the current state.

        As in ScyllaDB, the node must hear from the others first. A frozen node hears nothing.
        """
        if self.behind is None:
            raise ServerError("raft operation [read_barrier] timed out, there is no raft quorum")
        changed = change(self._past.present.catalog)
        self.known = self._past.newest
        return changed

    def end(self) -> None:
        """Tell the node's clients of all that they missed; the node lags no longer."""
        self.known = self._past.newest
        for _, kind, event in self._untold:
            self._tell(kind, event)
        self._past.end(self)
