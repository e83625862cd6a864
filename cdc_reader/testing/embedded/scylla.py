"""The embedded ScyllaDB, which assembles all parts of the server."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

from attrs import evolve

from cdc_reader._time import Clock, SystemClock
from cdc_reader.errors import ConfigurationError
from cdc_reader.testing.embedded.addresses import Addresses, reachable
from cdc_reader.testing.embedded.errors import CONSISTENCIES
from cdc_reader.testing.embedded.faults import FaultPlan
from cdc_reader.testing.embedded.hosts import Hosts
from cdc_reader.testing.embedded.page_replay import PageReplays
from cdc_reader.testing.embedded.profile import NEWEST, Profile, profile
from cdc_reader.testing.embedded.protocol import responses
from cdc_reader.testing.embedded.query.engine import Engine
from cdc_reader.testing.embedded.query.model import MOST_KEYS, QueryOptions
from cdc_reader.testing.embedded.query.result import EncodedPage, Prepared, Rows
from cdc_reader.testing.embedded.rest import RestApi
from cdc_reader.testing.embedded.schema.catalog import Catalog, SchemaChange
from cdc_reader.testing.embedded.server import Server
from cdc_reader.testing.embedded.session import Host
from cdc_reader.testing.embedded.storage.database import Database
from cdc_reader.testing.embedded.system.definitions import generation_range_tables, system_keyspaces
from cdc_reader.testing.embedded.system.generation_tables import (
    GenerationTables,
    Scylla43GenerationTable,
)
from cdc_reader.testing.embedded.system.publication import Publication
from cdc_reader.testing.embedded.tls import server_context
from cdc_reader.testing.embedded.topology.cluster import RING_DELAY_MS, Cluster, draw_nodes
from cdc_reader.testing.embedded.topology.generation import Generation
from cdc_reader.testing.embedded.topology.misplacing import Misplacing
from cdc_reader.testing.embedded.topology.ring import Node, Ring
from cdc_reader.testing.embedded.topology.streams import Streams
from cdc_reader.testing.embedded.topology.tablet_streams import TabletStreams
from cdc_reader.testing.embedded.topology.tablets import StreamSet

_MAX_STREAMS = 4_000_000

T = TypeVar("T")


Parameters = Sequence[bytes | None] | Mapping[str, bytes | None]
"""Serialized bind values, in order of the markers or by name."""


class EmbeddedScylla:
    """An in-process ScyllaDB cluster for development and tests, which stores nothing on disk.

        with EmbeddedScylla() as scylla:
            cluster = Cluster([scylla.host], port=scylla.port)

    Args:
        host: the address of the first node; the others listen on the next addresses.
        port: the port of all nodes; 0 for any free port.
        nodes: the number of nodes. Clients can connect to each node; all nodes share one store.
        vnodes: the number of token ranges per node.
        shards: the number of shards per node, which is the number of streams per token range.
        version: the ScyllaDB version to emulate, such as "5.2".
        clock: the server's clock.
        credentials: the (user, password) that clients must log in with; None for no login.
        certificate: the file with the certificate chain for TLS; None for plain connections.
        key: the file with the certificate's private key.
        client_authority: the CA file; clients must present a certificate signed by one of its
            CAs. If None, clients need no certificate.
        cluster_name: the name of the cluster.
        seed: the seed of random tokens and ids, including the ids of streams and log rows; None for
            a random seed.
        ring_delay_ms: the time in which nodes learn of each other, in ms. A generation takes effect
            5 s plus twice this time after its creation; in versions since 4.4, the first takes
            effect at once. If 0, every generation takes effect at once, as in ScyllaDB. A row that
            was written before a generation was created, but with a timestamp after the
            generation's start, is then in a stream of the previous generation.
        most_partitions: the setting `max_partition_key_restrictions_per_query`.
        api_port: the port of the REST API of all nodes; 0 for any free port, None to disable it.
        tablets: whether keyspaces use tablets by default.

    Use the attribute `faults` to make statements fail, and `misplacing` to write log rows to the
    wrong streams. Raises ConfigurationError for invalid values.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        nodes: int = 1,
        vnodes: int = 16,
        shards: int = 2,
        version: str = NEWEST,
        clock: Clock | None = None,
        credentials: tuple[str, str] | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        client_authority: str | Path | None = None,
        cluster_name: str = "embedded",
        seed: int | None = None,
        ring_delay_ms: int = RING_DELAY_MS,
        most_partitions: int = MOST_KEYS,
        api_port: int | None = None,
        tablets: bool = False,
    ) -> None:
        _positive(nodes=nodes, vnodes=vnodes, shards=shards, most_partitions=most_partitions)
        _check_streams(nodes, vnodes, shards)
        _check_port("port", port)
        _check_port("api_port", api_port or 0)
        self.host = host
        self.clock = clock or SystemClock()
        self.profile = _profile(version)
        if tablets and not self.profile.tablets:
            raise ConfigurationError("tablets", tablets, f"ScyllaDB {version} has none; 6.0 has")
        self.catalog = Catalog(
            self.profile,
            cluster_name=cluster_name,
            prefers_tablets=tablets,
            nodes=lambda: len(self.nodes),
        )
        self.faults = FaultPlan()
        self.misplacing = Misplacing()
        self._replays = PageReplays()
        self._down: dict[str, Host] = {}
        self.database = Database()
        source = random.Random(seed)
        self._addresses = Addresses(host)
        listen_addresses = [self._addresses.next() for _ in range(nodes)]
        addresses = [reachable(address) for address in listen_addresses]
        made = GenerationTables if self.profile.generation_ranges else Scylla43GenerationTable
        self._publication = Publication(made(self.catalog, self.database))
        self.cluster = Cluster(
            name=cluster_name,
            ring=Ring(draw_nodes(source, addresses, vnodes, shards)),
            streams=Streams(self.profile),
            source=source,
            publish=self._publication.publish,
            ring_delay_ms=ring_delay_ms,
            first_waits=not self.profile.generation_ranges,
        )
        self.tablets = TabletStreams(
            self.catalog,
            source,
            self.clock.now,
            later=lambda previous: self.cluster.later_timestamp(self.clock.now(), previous),
            default_tablets=lambda: sum(node.shards for node in self.cluster.nodes),
            profile=self.profile,
        )
        self.catalog.keyspaces.update((k.name, k) for k in system_keyspaces(self.profile))
        self.cluster.start(self.clock.now())
        self._hosts = Hosts(
            self.catalog,
            self.cluster,
            self.tablets,
            self.database,
            self.misplacing,
            self.faults,
            self._replays,
            self.clock,
            random_bytes=random.Random(seed).randbytes,
            most_partitions=most_partitions,
            credentials=credentials,
            server=lambda: self._server,
        )
        self._listen_addresses = dict(zip(addresses, listen_addresses, strict=True))
        hosts = [self._hosts.add(node) for node in self.cluster.nodes]
        self._first = hosts[0]
        self._server: Server = Server(
            dict(zip(listen_addresses, hosts, strict=True)),
            port,
            server_context(certificate, key, client_authority),
            api_port,
            lambda host: RestApi(self, host.address),
        )
        self.catalog.listeners += [self.tablets.follow, self._announce]

    @property
    def port(self) -> int:
        """The port that all nodes listen on."""
        return self._server.port

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes on the ring, in the order in which they joined."""
        return self.cluster.nodes

    @property
    def api_port(self) -> int | None:
        """The port of the REST API on all nodes; None if it is disabled."""
        return self._server.rest_port

    @property
    def contact_point(self) -> str:
        """``HOST:PORT`` of the first node."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def start(self) -> Self:
        """Listen for clients; raise OSError if an address or the port is not available."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Close all connections and stop listening; `execute` and `pages` continue to work."""
        self._server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def join(
        self,
        vnodes: int = 16,
        shards: int = 2,
        address: str | None = None,
        listen_address: str | None = None,
    ) -> Generation:
        """Add a node that listens on the next address; return the resulting generation.

        With `listen_address`, the node listens there instead. With `address`, it is advertised to
        clients at that address, where a relay must listen. Notifies clients that registered for
        events. Raises ConfigurationError if the next address is not an IPv4 address of this
        machine, and OSError if it is not available.
        """
        _positive(vnodes=vnodes, shards=shards)
        listen_address = listen_address or self._addresses.next()
        address = address or listen_address
        node = self._server.call(lambda: self.cluster.new_node(vnodes, shards, address))
        self._server.open_host(listen_address, self._hosts.add(node))
        self._listen_addresses[address] = listen_address
        generation = self._change(lambda: self.cluster.join(self.clock.now(), node))
        self._announce_node("TOPOLOGY_CHANGE", "NEW_NODE", address)
        self._announce_node("STATUS_CHANGE", "UP", address)
        return generation

    def leave(self, node: Node) -> None:
        """Remove a node from the ring. Other nodes take over its ranges; the streams do not change.

        Closes the node's connections, and notifies the clients that registered for events. Raises
        ValueError if the node is not on the ring, or is the last one.
        """
        if node not in self.cluster.nodes:
            raise ValueError(f"node {node.address}: expected one that is on the ring")
        self._server.call(lambda: self._hosts.remove(node))
        self._change(lambda: self.cluster.leave(node))
        if node.address in self._listen_addresses:
            if node.address not in self._down:
                self.take_down(node)
            del self._down[node.address], self._listen_addresses[node.address]
            self._announce_node("TOPOLOGY_CHANGE", "REMOVED_NODE", node.address)

    def take_down(self, node: Node) -> None:
        """Make a node fail: close its connections, accept no new ones, and send an event.

        Its data remains available, because the nodes share one store. Raises ValueError if the node
        is not up.
        """
        if node.address not in self._listen_addresses or node.address in self._down:
            raise ValueError(f"node {node.address}: expected one that clients can reach")
        self._down[node.address] = self._server.close_host(self._listen_addresses[node.address])
        self._announce_node("STATUS_CHANGE", "DOWN", node.address)

    def bring_up(self, node: Node) -> None:
        """Start a node that was taken down; its prepared statements are lost.

        Raises ValueError if the node is not down, and OSError if its address is in use.
        """
        if node.address not in self._down:
            raise ValueError(f"node {node.address}: expected one that was taken down")
        host = self._down[node.address]
        self._server.call(host.restart)
        self._server.open_host(self._listen_addresses[node.address], host)
        del self._down[node.address]
        self._announce_node("STATUS_CHANGE", "UP", node.address)

    def is_up(self, node: Node) -> bool:
        """Return True unless the node was taken down."""
        return node.address not in self._down

    def skew_clock(self, node: Node, micros: int) -> None:
        """Set a node's clock ahead of the cluster's by `micros` µs, which may be negative.

        If a write that this node receives has no timestamp, it gets one from the node's clock.
        """
        self._hosts.clock_of(node).ahead = micros

    def lag(self, node: Node, micros: int) -> None:
        """Make a node lag: from now on, it learns of each change `micros` µs after the others.

        The changes are those of the schema, of the nodes, and of the streams: `system`,
        `system_schema`, the statements that the node accepts, and what it reads of
        `system_distributed` at consistency level ONE. What the node knows already, it knows still.
        Rows of other tables, and the node's clock (see `skew_clock`), are not affected. The node
        reads `system_distributed` correctly at QUORUM. Raises ConfigurationError for a negative
        lag, and ValueError if the node is not on the ring.
        """
        if micros < 0:
            raise ConfigurationError("micros", micros, "expected at least 0")
        self._server.call(lambda: self._hosts.fall_behind(node, micros))

    def freeze(self, node: Node) -> None:
        """Make a node learn of no more changes, until it is released; see `lag`.

        The node refuses statements that change the schema, because it does not hear of the others.
        """
        self._server.call(lambda: self._hosts.fall_behind(node, None))

    def release(self, node: Node) -> None:
        """Let a node that lags, or is frozen, know everything again."""
        self._server.call(lambda: self._hosts.catch_up(node))

    @contextmanager
    def lagging(self, node: Node, micros: int | None = None) -> Iterator[None]:
        """Make a node lag by `micros` µs within the context; if None, the node is frozen."""
        if micros is None:
            self.freeze(node)
        else:
            self.lag(node, micros)
        try:
            yield
        finally:
            self.release(node)

    def check_and_repair_streams(self) -> Generation | None:
        """Create and return a generation, or return None if the newest one matches the ring."""
        return self._change(lambda: self.cluster.check_and_repair(self.clock.now()))

    def add_empty_generation(self) -> Generation:
        """Create a generation without streams; it takes effect after the usual delay."""
        return self._change(lambda: self.cluster.add_empty_generation(self.clock.now()))

    def hold_publication(self, rows: int | None = None) -> None:
        """Publish new generations only partially, until publication is resumed or completed.

        Writes only the first `rows` rows of each generation's description (None: all), and no
        timestamp. The server nevertheless logs writes in the streams of such a generation.
        """
        self._server.call(lambda: self._publication.hold(rows))

    def resume_publication(self) -> None:
        """Publish new generations completely again; generations already held back stay held."""
        self._server.call(self._publication.resume)

    def complete_publication(self) -> tuple[Generation, ...]:
        """Stop holding generations back; publish the generations held so far and return them."""
        return self._change(self._publication.complete)

    def upgrade_streams(self) -> None:
        """Simulate the upgrade from 4.3: publish all generations in new tables, by token range.

        Marks the upgrade in `system.cdc_local`. Has no effect on later versions.
        """
        self._change(self._upgrade_streams)

    def split_tablets(self, keyspace: str, table: str) -> StreamSet:
        """Split each tablet of a base table in two; return the new streams.

        Raises ValueError if the table has no log, or does not use tablets.
        """
        return self._change(lambda: self.tablets.split(keyspace, table))

    def merge_tablets(self, keyspace: str, table: str) -> StreamSet:
        """Merge each pair of tablets of a base table; return the new streams.

        Raises ValueError if the table has no log, does not use tablets, or has only one tablet.
        """
        return self._change(lambda: self.tablets.merge(keyspace, table))

    def replay(self, keyspace: str, table: str, pages: Sequence[bytes], times: int = 1) -> None:
        """Respond to every SELECT from a table with these pages, repeated `times` times.

        A page is the body of a RESULT with rows and metadata, recorded from a server or returned by
        `pages`; its paging state is replaced. Raises ValueError for any other body.
        """
        self._server.call(lambda: self._replays.begin(keyspace, table, pages, times))

    def end_replay(self, keyspace: str, table: str) -> None:
        """Stop the replay: SELECTs read the table again."""
        self._server.call(lambda: self._replays.end(keyspace, table))

    def execute(
        self, cql: str, parameters: Parameters = (), *, node: Node | None = None
    ) -> list[tuple[bytes | None, ...]]:
        """Execute a statement on a node without a connection, even before `start`.

        `parameters` are serialized bind values, in order of the markers or by name. `node` is the
        first node if None. Returns all rows, with serialized cells. Faults do not affect the
        statement. Raises an error with the server's message if the statement is invalid, and
        ValueError for a SELECT from a table for which `replay` is active.
        """
        return self._server.call(lambda: self._execute(cql, parameters, node))

    def pages(self, cql: str, page_size: int = 5000, parameters: Parameters = ()) -> list[bytes]:
        """Return the pages of a SELECT, as bodies of RESULTs with metadata.

        The pages can be passed to `replay`, or decoded without a connection. For `parameters`, see
        `execute`.
        """
        return self._server.call(lambda: self._pages(cql, page_size, parameters))

    def _prepare(self, cql: str, node: Node | None = None) -> Prepared:
        """Return a statement's bind variables and result columns; raise the errors of `execute`."""
        return self._server.call(lambda: self._engine(node).prepare(cql, QueryOptions()))

    def page(
        self,
        cql: str,
        parameters: Parameters = (),
        *,
        page_size: int = 5000,
        paging_state: bytes | None = None,
        skip_metadata: bool = False,
        node: Node | None = None,
        consistency: str = "ONE",
    ) -> bytes:
        """Execute a SELECT, and return one page as the body of a RESULT; see `pages`.

        With the paging state of a page as `paging_state`, returns the next page. Each page may be
        requested from another `node`; None is the first.
        """
        level = CONSISTENCIES.index(consistency)
        options = QueryOptions(level, page_size=page_size, paging_state=paging_state)
        style = responses.ResultFormat(skip_metadata=skip_metadata)
        found = self._server.call(lambda: self._engine(node).query(cql, parameters, options))
        return responses.result(found, style=style).content

    def _engine(self, node: Node | None) -> Engine:
        return (self._first if node is None else self._hosts.of(node)).engine

    def _execute(
        self, cql: str, parameters: Parameters, node: Node | None
    ) -> list[tuple[bytes | None, ...]]:
        match self._engine(node).query(cql, parameters, QueryOptions()):
            case Rows(rows=rows):
                return rows
            case EncodedPage():
                raise ValueError(f"{cql}: expected a table that is not under replay")
            case _:
                return []

    def _pages(self, cql: str, page_size: int, parameters: Parameters) -> list[bytes]:
        engine, options = self._first.engine, QueryOptions(page_size=page_size)
        bodies: list[bytes] = []
        while isinstance(result := engine.query(cql, parameters, options), Rows):
            bodies.append(responses.result(result).content)
            if result.paging_state is None:
                return bodies
            options = evolve(options, paging_state=result.paging_state)
        raise ValueError(f"{cql}: expected a SELECT from a table that is not under replay")

    def _upgrade_streams(self) -> None:
        added = [t for t in generation_range_tables() if not self.catalog.has(t.keyspace, t.name)]
        for table in added:
            self.catalog.keyspaces[table.keyspace].tables[table.name] = table
            self.catalog.changed(SchemaChange("CREATED", "TABLE", table.keyspace, table.name))
        if added:
            self._publication.rewrite(
                GenerationTables(self.catalog, self.database), self.cluster.generations
            )

    def _change(self, change: Callable[[], T]) -> T:
        """Make a change that nodes may learn late; return its result."""
        return self._server.call(lambda: self._hosts.changed(change))

    def _announce(self, change: SchemaChange) -> None:
        self._hosts.tell("SCHEMA_CHANGE", responses.schema_event(change))

    def _announce_node(self, kind: str, change: str, address: str) -> None:
        event = responses.node_event(kind, change, address, self.port)
        self._server.call(lambda: self._hosts.tell(kind, event))


def _positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ConfigurationError(name, count, "expected at least 1")


def _check_streams(nodes: int, vnodes: int, shards: int) -> None:
    """Check that there are not too many streams: one per node, token range and shard."""
    if nodes * vnodes * shards > _MAX_STREAMS:
        remedy = f"expected up to {_MAX_STREAMS} streams: nodes x vnodes x shards"
        raise ConfigurationError("vnodes", vnodes, remedy)


def _check_port(name: str, port: int) -> None:
    if not 0 <= port < 1 << 16:
        raise ConfigurationError(name, port, "expected 0 to 65535; 0 is one that is free")


def _profile(version: str) -> Profile:
    try:
        return profile(version)
    except ValueError:
        remedy = f"expected a version of ScyllaDB such as '5.2' or {NEWEST!r}"
        raise ConfigurationError("version", version, remedy) from None
