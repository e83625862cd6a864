"""The tables of `system_schema`, which show the catalog as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from uuid import uuid3

from attrs import field, frozen

from cdc_reader.testing.embedded.profile import Profile
from cdc_reader.testing.embedded.schema.catalog import Catalog, Keyspace
from cdc_reader.testing.embedded.schema.table import COMPRESSION, MURMUR3, Kind, Table
from cdc_reader.testing.embedded.storage.partition import Partition
from cdc_reader.testing.embedded.system.virtual import (
    WRITTEN,
    PartitionKey,
    Values,
    VirtualSource,
    partitions_of,
)

SCHEMA = "system_schema"

_LOCATOR = "org.apache.cassandra.locator."
_COMPACTION = "org.apache.cassandra.db.compaction."
_DEFAULTS: Mapping[str, Any] = {
    "bloom_filter_fp_chance": 0.01,
    "comment": "",
    "crc_check_chance": 1.0,
    "dclocal_read_repair_chance": 0.0,
    "default_time_to_live": 0,
    "gc_grace_seconds": 864000,
    "max_index_interval": 2048,
    "memtable_flush_period_in_ms": 0,
    "min_index_interval": 128,
    "read_repair_chance": 0.0,
    "speculative_retry": "99.0PERCENTILE",
}
_NUMBERS: Mapping[str, Callable[[Any], Any]] = {
    name: type(value) for name, value in _DEFAULTS.items()
}


@frozen
class _SchemaTable(VirtualSource):
    """The rows of a schema table, by keyspace; the rows of system keyspaces are created once."""

    of: Callable[[Keyspace], Iterable[Values]]
    catalog: Catalog
    _kept: dict[tuple[str, int], dict[PartitionKey, Partition]] = field(factory=dict)

    def made(self, table: Table, wanted: PartitionKey | None) -> dict[PartitionKey, Partition]:
        made: dict[PartitionKey, Partition] = {}
        for keyspace in self._keyspaces(wanted):
            kept = (keyspace.name, len(keyspace.tables))
            if (found := self._kept.get(kept)) is None:
                found = partitions_of(table, self.of(keyspace))
                if keyspace.system:
                    self._kept[kept] = found
            made |= found
        return made

    def _keyspaces(self, key: PartitionKey | None) -> Iterator[Keyspace]:
        if key is None:
            yield from self.catalog.keyspaces.values()
        elif keyspace := self.catalog.keyspaces.get(key[0].decode(errors="replace")):
            yield keyspace


def schema_tables(catalog: Catalog) -> dict[tuple[str, str], VirtualSource]:
    """Return the sources of all tables of `system_schema`, by (keyspace, table)."""
    filled: dict[str, Callable[[Keyspace], Iterable[Values]]] = {
        "columns": _columns,
        "dropped_columns": _dropped_columns,
        "indexes": _indexes,
        "keyspaces": _keyspace,
        "scylla_keyspaces": _scylla_keyspace,
        "scylla_tables": _scylla_tables,
        "tables": lambda keyspace: _tables(keyspace, catalog.profile),
        "types": _types,
    }
    return {
        (SCHEMA, name): _SchemaTable(filled.get(name, lambda _: ()), catalog)
        for name in catalog.keyspaces[SCHEMA].tables
    }


def _keyspace(keyspace: Keyspace) -> Iterator[Values]:
    yield {
        "keyspace_name": keyspace.name,
        "durable_writes": keyspace.durable_writes,
        "replication": replication(keyspace),
    }


def replication(keyspace: Keyspace) -> dict[str, str]:
    """Return a keyspace's replication map, with the full class name."""
    found = dict(keyspace.replication)
    return {**found, "class": _qualified(found.get("class", ""), _LOCATOR)}


def _scylla_keyspace(keyspace: Keyspace) -> Iterator[Values]:
    if keyspace.tablets is not None or keyspace.consistency is not None:
        yield {
            "keyspace_name": keyspace.name,
            "initial_tablets": keyspace.tablets,
            "consistency": keyspace.consistency,
        }


def _indexes(keyspace: Keyspace) -> Iterator[Values]:
    for table in keyspace.tables.values():
        for name, options in table.indexes.items():
            yield {
                "keyspace_name": keyspace.name,
                "table_name": table.name,
                "index_name": name,
                "kind": "CUSTOM",
                "options": options,
            }


def _tables(keyspace: Keyspace, profile: Profile) -> Iterator[Values]:
    for table in keyspace.tables.values():
        yield {
            "keyspace_name": keyspace.name,
            "table_name": table.name,
            "id": table.id,
            "flags": ("compound", "counter") if table.is_counter else ("compound",),
            "extensions": {"cdc": table.cdc_options.as_extension()} if table.cdc_options else {},
            WRITTEN: table.altered_us,
            **properties(table, profile),
        }


def properties(table: Table, profile: Profile) -> dict[str, Any]:
    """Return a table's properties by name, including the version's defaults."""
    given = {name: _NUMBERS[name](v) for name, v in table.options.items() if name in _NUMBERS}
    strategy = "Incremental" if profile.newer_defaults else "SizeTiered"
    default = {"class": f"{strategy}CompactionStrategy"}
    compaction = {**default, **table.options.get("compaction", {})}
    compaction["class"] = compaction["class"].removeprefix(_COMPACTION)
    return {
        **_DEFAULTS,
        **given,
        "caching": _caching(table.options.get("caching", {})),
        "compaction": compaction,
        "compression": _compression(table.options.get("compression"), profile),
    }


def _caching(given: Mapping[str, str]) -> dict[str, str]:
    amount = "NONE" if given.get("enabled") == "false" else "ALL"
    return {"keys": amount, "rows_per_partition": amount, **given}


def _compression(given: Mapping[str, str] | None, profile: Profile) -> dict[str, str]:
    if given is None:
        default = "LZ4WithDictsCompressor" if profile.newer_defaults else "LZ4Compressor"
        given = {"sstable_compression": default}
    name = given.get("sstable_compression") or given.get("class") or ""
    if not name:
        return {}
    rest = {k: v for k, v in given.items() if k not in ("sstable_compression", "class")}
    name = name.removeprefix(COMPRESSION)
    # Compressors that Cassandra does not have are shown without the package.
    shown = name if "WithDicts" in name else COMPRESSION + name
    return {"sstable_compression": shown, **rest}


def _columns(keyspace: Keyspace) -> Iterator[Values]:
    for table in keyspace.tables.values():
        for column in table.columns:
            order = "DESC" if column.descending else "ASC"
            yield {
                "keyspace_name": keyspace.name,
                "table_name": table.name,
                "column_name": column.name,
                "clustering_order": order if column.kind is Kind.CLUSTERING else "NONE",
                "column_name_bytes": column.name.encode(),
                "kind": column.kind.value,
                "position": column.position if column.is_key else -1,
                "type": str(column.type),
            }


def _dropped_columns(keyspace: Keyspace) -> Iterator[Values]:
    for table in keyspace.tables.values():
        for name, (cql_type, dropped_us) in table.dropped.items():
            yield {
                "keyspace_name": keyspace.name,
                "table_name": table.name,
                "column_name": name,
                "dropped_time": dropped_us // 1000,
                "type": str(cql_type),
            }


def _types(keyspace: Keyspace) -> Iterator[Values]:
    for user_type in keyspace.types.values():
        yield {
            "keyspace_name": keyspace.name,
            "type_name": user_type.name,
            "field_names": [name for name, _ in user_type.fields],
            "field_types": [str(cql_type) for _, cql_type in user_type.fields],
        }


def _scylla_tables(keyspace: Keyspace) -> Iterator[Values]:
    """Yield each user table's version, and its partitioner if it is not the default."""
    for table in () if keyspace.system else keyspace.tables.values():
        yield {
            "keyspace_name": keyspace.name,
            "table_name": table.name,
            "partitioner": None if table.partitioner == MURMUR3 else table.partitioner,
            "version": uuid3(table.id, repr(table)),
        }


def _qualified(name: str, package: str) -> str:
    return name if "." in name else package + name
