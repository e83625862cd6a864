"""Tables of `system` that describe a node, its peers, its clients and its CDC generation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from attrs import frozen

from cdc_reader.testing.embedded.profile import Profile
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.schema.table import MURMUR3
from cdc_reader.testing.embedded.system.definitions import GENERATION_TIMESTAMPS
from cdc_reader.testing.embedded.system.virtual import PartitionKey, Values, VirtualTable
from cdc_reader.testing.embedded.topology.cluster import Cluster
from cdc_reader.testing.embedded.topology.ring import Node

SYSTEM = "system"
# The Cassandra version that ScyllaDB reports to clients.
RELEASE_VERSION = "3.0.8"
CQL_VERSION = "3.3.1"

_FEATURES = (
    "AGGREGATE_STORAGE_OPTIONS CDC CDC_GENERATIONS_V2 COLLECTION_INDEXING COMPUTED_COLUMNS "
    "COUNTERS DIGEST_FOR_NULL_VALUES INDEXES LWT MATERIALIZED_VIEWS NONFROZEN_UDTS "
    "PER_TABLE_CACHING PER_TABLE_PARTITIONERS RANGE_TOMBSTONES ROLES SCHEMA_TABLES_V3 "
    "TOMBSTONE_GC_OPTIONS TRUNCATION_TABLE UDA UNBOUNDED_RANGE_TOMBSTONES VIEW_VIRTUAL_COLUMNS"
)


@frozen
class NodeTables:
    """The virtual tables of keyspace `system` on `node`.

    An IN list may select at most `most_partitions` partitions, and `most_rows` rows in each of
    them. `clients` returns the rows of `system.clients`; nodes listen on `port`. `version_of`
    returns the schema version of a node.
    """

    node: Node
    cluster: Cluster
    catalog: Catalog
    profile: Profile
    most_partitions: int
    most_rows: int
    version_of: Callable[[Node], UUID]
    clients: Callable[[], Iterable[Values]] = tuple
    port: Callable[[], int] = int

    def sources(self) -> Mapping[tuple[str, str], VirtualTable]:
        """Return the sources by (keyspace, table)."""
        filled: dict[str, Callable[[PartitionKey | None], Iterable[Values]]] = {
            "cdc_local": self._cdc_local,
            "clients": lambda _: self.clients(),
            "config": self._config,
            "local": self._local,
            "peers": self._peers,
            "protocol_servers": self._protocol_servers,
            "runtime_info": self._runtime_info,
            "scylla_local": self._scylla_local,
            "versions": self._versions,
        }
        return {(SYSTEM, name): VirtualTable(rows) for name, rows in filled.items()}

    def _local(self, _: PartitionKey | None) -> Iterator[Values]:
        first = self.cluster.generations[0]
        yield {
            "key": "local",
            "bootstrapped": "COMPLETED",
            "broadcast_address": self.node.address,
            "cluster_name": self.cluster.name,
            "cql_version": CQL_VERSION,
            "gossip_generation": first.timestamp // 1000,
            "listen_address": self.node.address,
            "native_protocol_version": "4",
            "partitioner": MURMUR3,
            "thrift_version": "20.1.0",
            **self._common(self.node),
        }

    def _peers(self, _: PartitionKey | None) -> Iterator[Values]:
        for node in self.cluster.nodes:
            if node.address is not None and node.host_id != self.node.host_id:
                yield {"peer": node.address, **self._common(node)}

    def _common(self, node: Node) -> dict[str, Any]:
        return {
            "data_center": node.data_center,
            "host_id": node.host_id,
            "rack": node.rack,
            "release_version": RELEASE_VERSION,
            "rpc_address": node.address,
            "schema_version": self.version_of(node),
            "supported_features": ",".join(_FEATURES.split()),
            "tokens": [str(token) for token in node.tokens],
        }

    def _versions(self, _: PartitionKey | None) -> Iterator[Values]:
        patch = self.profile.version + ".0" * (2 - self.profile.version.count("."))
        yield {
            "key": "local",
            "build_id": self.node.host_id.hex,
            "build_mode": "release",
            "version": f"{patch}-0.embedded",
        }

    def _config(self, _: PartitionKey | None) -> Iterator[Values]:
        """Yield the settings that clients read."""
        by_default = self.catalog.prefers_tablets
        settings: dict[str, tuple[str, object]] = {
            "cluster_name": ("string", self.cluster.name),
            "enable_tablets": ("bool", str(by_default).lower()),
            "max_clustering_key_restrictions_per_query": ("uint32_t", self.most_rows),
            "max_partition_key_restrictions_per_query": ("uint32_t", self.most_partitions),
            "native_transport_port": ("uint16_t", self.port()),
            "num_tokens": ("uint32_t", len(self.node.tokens)),
            "partitioner": ("string", MURMUR3),
            "restrict_future_timestamp": ("bool", "true"),
            "ring_delay_ms": ("uint32_t", self.cluster.ring_delay_ms),
            "tablets_mode_for_new_keyspaces": ("string", "enabled" if by_default else "disabled"),
        }
        for name, (of_type, value) in settings.items():
            text = f'"{value}"' if of_type == "string" else str(value)
            yield {"name": name, "source": "default", "type": of_type, "value": text}

    def _protocol_servers(self, _: PartitionKey | None) -> Iterator[Values]:
        address = f"{self.node.address}:{self.port()}"
        yield {
            "name": "native",
            "is_running": True,
            "listen_addresses": [address],
            "protocol": "cql",
            "protocol_version": CQL_VERSION,
        }

    def _runtime_info(self, _: PartitionKey | None) -> Iterator[Values]:
        for group, item, value in (
            ("generic", "load", "0"),
            ("generic", "trace_probability", "0.00"),
            ("gossip", "active", "true"),
            ("native_transport", "active", "true"),
        ):
            yield {"group": group, "item": item, "value": value}

    def _scylla_local(self, _: PartitionKey | None) -> Iterator[Values]:
        yield {"key": "enabled_features", "value": ",".join(_FEATURES.split())}
        yield {"key": "group0_schema_version", "value": str(self.catalog.version)}

    def _cdc_local(self, _: PartitionKey | None) -> Iterator[Values]:
        newest = self.cluster.generations[-1]
        yield {"key": "cdc_local", "streams_timestamp": newest.timestamp, "uuid": newest.id}
        is_rewritten = self.catalog.has(*GENERATION_TIMESTAMPS)
        if is_rewritten and self.cluster.marks_rewritten:
            yield {"key": "rewritten"}
