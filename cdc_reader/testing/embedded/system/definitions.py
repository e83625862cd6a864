"""The system keyspaces and tables, as the schema tables of a real server list them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from functools import cached_property
from hashlib import md5
from uuid import UUID

from cdc_reader.cql.types import parse
from cdc_reader.testing.embedded.codec.order import SortKey
from cdc_reader.testing.embedded.codec.token import cdc_token
from cdc_reader.testing.embedded.profile import Profile
from cdc_reader.testing.embedded.schema.catalog import Keyspace
from cdc_reader.testing.embedded.schema.table import Column, Kind, Table

_LOCATOR = "org.apache.cassandra.locator."
_LOCAL = {"class": _LOCATOR + "LocalStrategy"}
_EVERYWHERE = {"class": _LOCATOR + "EverywhereStrategy"}

# One table per line: name: partition key | clustering key | other columns.
_PROPERTIES = (
    "bloom_filter_fp_chance double, caching frozen<map<text, text>>, comment text, "
    "compaction frozen<map<text, text>>, compression frozen<map<text, text>>, "
    "crc_check_chance double, dclocal_read_repair_chance double, default_time_to_live int, "
    "extensions frozen<map<text, blob>>, gc_grace_seconds int, id uuid, max_index_interval int, "
    "memtable_flush_period_in_ms int, min_index_interval int, read_repair_chance double, "
    "speculative_retry text"
)
_COLUMN = "clustering_order text, column_name_bytes blob, kind text, position int, type text"
_SIGNATURE = "argument_types frozen<list<text>>"

_SYSTEM_SCHEMA = f"""
aggregates: keyspace_name text | aggregate_name text, {_SIGNATURE} | final_func text, \
initcond text, return_type text, state_func text, state_type text
columns: keyspace_name text | table_name text, column_name text | {_COLUMN}
computed_columns: keyspace_name text | table_name text, column_name text | computation blob
dropped_columns: keyspace_name text | table_name text, column_name text | \
dropped_time timestamp, type text
functions: keyspace_name text | function_name text, {_SIGNATURE} | \
argument_names frozen<list<text>>, body text, called_on_null_input boolean, language text, \
return_type text
indexes: keyspace_name text | table_name text, index_name text | kind text, \
options frozen<map<text, text>>
keyspaces: keyspace_name text | | durable_writes boolean, replication frozen<map<text, text>>
scylla_aggregates: keyspace_name text | aggregate_name text, {_SIGNATURE} | reduce_func text, \
state_type text
scylla_tables: keyspace_name text | table_name text | cdc frozen<map<text, text>>, \
partitioner text, version uuid
tables: keyspace_name text | table_name text | {_PROPERTIES}, flags frozen<set<text>>
triggers: keyspace_name text | table_name text, trigger_name text | \
options frozen<map<text, text>>
types: keyspace_name text | type_name text | field_names frozen<list<text>>, \
field_types frozen<list<text>>
view_virtual_columns: keyspace_name text | table_name text, column_name text | {_COLUMN}
views: keyspace_name text | view_name text | {_PROPERTIES}, base_table_id uuid, \
base_table_name text, include_all_columns boolean, where_clause text
"""
_SCYLLA_KEYSPACES = (
    "scylla_keyspaces: keyspace_name text | | storage_options frozen<map<text, text>>, "
    "storage_type text"
)
_SYSTEM = """
built_views: keyspace_name text | view_name text | status_replicated boolean
cdc_local: key text | | streams_timestamp timestamp, uuid uuid
clients: address inet | port int, client_type text | connection_stage text, driver_name text, \
driver_version text, hostname text, protocol_version int, shard_id int, ssl_cipher_suite text, \
ssl_enabled boolean, ssl_protocol text, username text
config: name text | | source text, type text, value text
local: key text | | bootstrapped text, broadcast_address inet, cluster_name text, \
cql_version text, data_center text, gossip_generation int, host_id uuid, listen_address inet, \
native_protocol_version text, partitioner text, rack text, release_version text, \
rpc_address inet, schema_version uuid, supported_features text, thrift_version text, \
tokens set<text>, truncated_at map<uuid, blob>
peers: peer inet | | data_center text, host_id uuid, preferred_ip inet, rack text, \
release_version text, rpc_address inet, schema_version uuid, supported_features text, \
tokens set<text>
protocol_servers: name text | | is_running boolean, listen_addresses frozen<list<text>>, \
protocol text, protocol_version text
runtime_info: group text | item text | value text
scylla_local: key text | | value text
size_estimates: keyspace_name text | table_name text, range_start text, range_end text | \
mean_partition_size bigint, partitions_count bigint
versions: key text | | build_id text, build_mode text, version text
"""
_SYSTEM_TABLETS = """
cdc_streams: keyspace_name text, table_name text | timestamp timestamp, stream_state tinyint, \
stream_id blob |
cdc_streams_history: table_id uuid | timestamp timestamp, stream_state tinyint, \
last_token bigint | stream_id blob
cdc_streams_state: table_id uuid | last_token bigint | stream_id blob, timestamp timestamp static
cdc_timestamps: keyspace_name text, table_name text | timestamp timestamp desc |
"""
_SYSTEM_AUTH = """
role_attributes: role text | name text | value text
role_members: role text | member text |
role_permissions: role text | resource text | permissions set<text>
roles: role text | | can_login boolean, is_superuser boolean, member_of set<text>, \
salted_hash text
"""
_GENERATION_RANGES = """
cdc_generation_timestamps: key text | time timestamp desc | expired timestamp
cdc_streams_descriptions_v2: time timestamp | range_end bigint | streams frozen<set<blob>>
"""
_SCYLLA_43_DESCRIPTIONS = """
cdc_streams_descriptions: time timestamp | | streams frozen<set<blob>>, expired timestamp
"""
_SYSTEM_DISTRIBUTED = """
service_levels: service_level text | | timeout duration, workload_type text
view_build_status: keyspace_name text, view_name text | host_id uuid | status text
"""
_SYSTEM_DISTRIBUTED_EVERYWHERE = """
cdc_generation_descriptions_v2: id uuid | range_end bigint | ignore_msb tinyint, \
streams frozen<set<blob>>, num_ranges int static
"""
_SYSTEM_TRACES = """
events: session_id uuid | event_id timeuuid | activity text, scylla_parent_id bigint, \
scylla_span_id bigint, source inet, source_elapsed int, thread text
sessions: session_id uuid | | client inet, command text, coordinator inet, duration int, \
parameters map<text, text>, request text, request_size int, response_size int, \
started_at timestamp, username text
"""

DISTRIBUTED = "system_distributed"
GENERATION_TIMESTAMPS = (DISTRIBUTED, "cdc_generation_timestamps")
SCYLLA_43_DESCRIPTIONS = (DISTRIBUTED, "cdc_streams_descriptions")
STREAMS_DESCRIPTIONS = (DISTRIBUTED, "cdc_streams_descriptions_v2")


class StreamsTable(Table):
    """`system.cdc_streams`, whose streams are sorted by their signed tokens, not by their bytes."""

    @cached_property
    def clustering_sort_keys(self) -> tuple[SortKey, ...]:
        *others, _ = super().clustering_sort_keys
        return (*others, lambda stream_id: (cdc_token(stream_id), stream_id))


def system_keyspaces(profile: Profile) -> Iterator[Keyspace]:
    """Yield the keyspaces of a new server of this version."""
    scylla_keyspaces = _SCYLLA_KEYSPACES + ", initial_tablets int" * profile.tablets
    scylla_keyspaces += ", consistency text" * profile.strong_consistency
    system = _SYSTEM + _SYSTEM_TABLETS * profile.cdc_on_tablets
    descriptions = _GENERATION_RANGES if profile.generation_ranges else _SCYLLA_43_DESCRIPTIONS
    yield _keyspace("system", _LOCAL, system)
    yield _keyspace("system_schema", _LOCAL, _SYSTEM_SCHEMA + scylla_keyspaces)
    yield _keyspace("system_auth", _simple(1), _SYSTEM_AUTH)
    yield _keyspace(DISTRIBUTED, _simple(3), descriptions + _SYSTEM_DISTRIBUTED)
    yield _keyspace("system_distributed_everywhere", _EVERYWHERE, _SYSTEM_DISTRIBUTED_EVERYWHERE)
    yield _keyspace("system_traces", _simple(2), _SYSTEM_TRACES)


def generation_range_tables() -> Iterator[Table]:
    """Yield the tables that the upgrade from 4.3 adds to `system_distributed`."""
    yield from _tables("system_distributed", _GENERATION_RANGES)


def _simple(factor: int) -> dict[str, str]:
    return {"class": _LOCATOR + "SimpleStrategy", "replication_factor": str(factor)}


def _keyspace(name: str, replication: dict[str, str], text: str) -> Keyspace:
    tables = {table.name: table for table in _tables(name, text)}
    return Keyspace(name, replication, tables=tables, system=True)


@functools.cache
def _tables(keyspace: str, text: str) -> tuple[Table, ...]:
    """Parse table definitions; tables are immutable, so all servers in a process share them."""
    return tuple(_table(keyspace, line) for line in filter(None, text.splitlines()))


def _table(keyspace: str, line: str) -> Table:
    name, _, rest = line.partition(": ")
    groups = [re.findall(r"(\w+) ((?:<[^|]*?>+|[^,|<])+)", part) for part in rest.split("|")]
    kinds = (Kind.PARTITION_KEY, Kind.CLUSTERING, Kind.REGULAR)
    columns = (
        _column(column, definition.strip(), kind, position)
        for kind, group in zip(kinds, groups, strict=True)
        for position, (column, definition) in enumerate(group)
    )
    made = StreamsTable if name == "cdc_streams" else Table
    return made(keyspace, name, _table_id(keyspace, name), tuple(columns))


def _column(name: str, definition: str, kind: Kind, position: int) -> Column:
    if kind is Kind.REGULAR:
        kind = Kind.STATIC if definition.endswith(" static") else kind
        return Column(name, parse(definition.removesuffix(" static")), kind)
    cql_type = parse(definition.removesuffix(" desc"))
    return Column(name, cql_type, kind, position, descending=definition.endswith(" desc"))


def _table_id(keyspace: str, name: str) -> UUID:
    """Return the id of a system table: a name-based UUID made from the keyspace and table names."""
    digest = md5((keyspace + name).encode(), usedforsecurity=False).digest()
    return UUID(bytes=digest, version=3)
