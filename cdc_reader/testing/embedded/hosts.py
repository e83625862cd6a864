"""The hosts of a cluster's nodes: assembles the parts of each node, and lets nodes lag."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from attrs import define, field

from cdc_reader.testing.embedded.cdc.write_path import WritePath
from cdc_reader.testing.embedded.clients import client_rows
from cdc_reader.testing.embedded.faults import FaultPlan
from cdc_reader.testing.embedded.node_clock import NodeClock, Now
from cdc_reader.testing.embedded.node_view import NodeView, Past, State
from cdc_reader.testing.embedded.page_replay import PageReplays
from cdc_reader.testing.embedded.protocol.responses import Answer
from cdc_reader.testing.embedded.query.engine import Engine
from cdc_reader.testing.embedded.query.model import MOST_KEYS
from cdc_reader.testing.embedded.query.planner import Planner, alters
from cdc_reader.testing.embedded.query.ports import Alter, TableSource
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.server import Server
from cdc_reader.testing.embedded.session import Host, supported_options
from cdc_reader.testing.embedded.storage.database import Database
from cdc_reader.testing.embedded.system.node_tables import NodeTables
from cdc_reader.testing.embedded.system.schema_tables import schema_tables
from cdc_reader.testing.embedded.system.tablet_tables import TabletTables
from cdc_reader.testing.embedded.system.traces import Traces
from cdc_reader.testing.embedded.topology.choice import StreamChoice
from cdc_reader.testing.embedded.topology.cluster import Cluster
from cdc_reader.testing.embedded.topology.misplacing import Misplacing
from cdc_reader.testing.embedded.topology.ring import Node
from cdc_reader.testing.embedded.topology.tablet_streams import TabletStreams

T = TypeVar("T")


@define(eq=False)
class Hosts:
    """The hosts of the nodes on the ring, which share the parts given here.

    `server` returns the server on which the hosts listen.
    """

    catalog: Catalog
    cluster: Cluster
    tablets: TabletStreams
    database: Database
    misplacing: Misplacing
    faults: FaultPlan
    replays: PageReplays
    clock: Now
    random_bytes: Callable[[int], bytes]
    most_partitions: int
    credentials: tuple[str, str] | None
    server: Callable[[], Server]
    _traces: Traces = field(factory=Traces, init=False)
    _hosts: dict[str | None, Host] = field(factory=dict, init=False)
    _clocks: dict[str | None, NodeClock] = field(factory=dict, init=False)
    _present: State = field(init=False)
    _past: Past = field(init=False)

    def __attrs_post_init__(self) -> None:
        histories, version_of = self.tablets.histories, self._version_of
        self._present = State(self.catalog, self.cluster, histories, version_of, self.database)
        self._past = Past(self._present, self.clock.now)
        self.tablets.on_discard = self._past.record

    def add(self, node: Node) -> Host:
        """Assemble the host of a node that joins."""
        clock = self._clocks[node.address] = NodeClock(self.clock)
        planner = self._planner(node, self._present)
        host = self._hosts[node.address] = Host(
            Engine(
                planner,
                clock.now,
                self.replays,
                self.most_partitions,
                self.catalog.nodes,
            ),
            supported_options(node),
            self.credentials,
            node.shards,
            self.faults,
            node.address or "",
            self._traces,
        )
        return host

    def remove(self, node: Node) -> None:
        """Forget a node that left."""
        self.catch_up(node)
        del self._hosts[node.address]

    def of(self, node: Node) -> Host:
        """Return a node's host; raise ValueError if the node is not on the ring."""
        if node.address not in self._hosts:
            raise ValueError(f"node {node.address}: expected one that is on the ring")
        return self._hosts[node.address]

    def clock_of(self, node: Node) -> NodeClock:
        return self._clocks[node.address]

    def changed(self, change: Callable[[], T]) -> T:
        """Make a change that nodes may learn late; return its result."""
        result = change()
        self._past.record()
        return result

    def fall_behind(self, node: Node, behind: int | None) -> None:
        """Make a node learn of changes `behind` µs late; if None, of none until it catches up."""
        host = self.of(node)
        if host.view is not None:
            host.view.refresh()
            host.view.behind = behind
            return
        engine = host.engine

        def show(view: NodeView, state: State) -> None:
            engine.show(self._planner(node, state, view.alter), state.replicas())

        def tell(kind: str, event: Answer) -> None:
            self.server().broadcast(kind, event, (host,))

        host.view = NodeView(behind, self._past, show, tell)

    def catch_up(self, node: Node) -> None:
        """Let a node know everything again."""
        host = self.of(node)
        if host.view is not None:
            view, host.view = host.view, None
            host.engine.show(self._planner(node, self._present))
            view.end()

    def tell(self, kind: str, event: Answer) -> None:
        """Send an event to all clients; the clients of a node that lags get it later."""
        self._past.record()
        self.server().broadcast(
            kind, event, [each for each in self._hosts.values() if each.view is None]
        )
        for host in self._hosts.values():
            if host.view is not None:
                host.view.tell_later(kind, event)

    def _version_of(self, node: Node) -> UUID:
        """Return the schema version that a node has."""
        view = self.of(node).view
        return (self._present if view is None else view.state).catalog.version

    def _planner(self, node: Node, state: State, alter: Alter | None = None) -> Planner:
        """Return the planner of a node that knows this state."""
        profile = self.catalog.profile
        node_tables = NodeTables(
            node,
            state.cluster,
            state.catalog,
            profile,
            most_partitions=self.most_partitions,
            most_rows=MOST_KEYS,
            version_of=state.version_of,
            clients=lambda: client_rows(self.server(), self.of(node)),
            port=lambda: self.server().port,
        )
        virtual: dict[tuple[str, str], TableSource] = {
            **schema_tables(state.catalog),
            **node_tables.sources(),
            **TabletTables(state.tablets).sources(),
            **self._traces.sources(),
        }
        # Whatever a node knows, it logs writes in the right streams, unless `misplacing` is set.
        streams = StreamChoice(self.catalog, self.cluster.streams, self.tablets, self.misplacing)
        return Planner(
            state.catalog,
            self.database,
            WritePath(state.catalog, self.database, streams, profile, self.random_bytes),
            self._clocks[node.address].now,
            virtual,
            alter or alters(self.catalog),
        )
