"""The log table of a base table: its name, columns and properties."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid1

from cdc_reader.cql_type import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    UserType,
    freeze,
)
from cdc_reader.testing.embedded.codec.token import CDC_PARTITIONER
from cdc_reader.testing.embedded.schema.table import Column, Kind, Table

LOG_SUFFIX = "_scylla_cdc_log"

STREAM_ID = "cdc$stream_id"
TIME = "cdc$time"
BATCH_SEQ_NO = "cdc$batch_seq_no"
OPERATION = "cdc$operation"
TTL = "cdc$ttl"
END_OF_BATCH = "cdc$end_of_batch"
DELETED = "cdc$deleted_"
DELETED_ELEMENTS = "cdc$deleted_elements_"

_TIMEUUID = Native("timeuuid")
_META = (
    Column(STREAM_ID, Native("blob"), Kind.PARTITION_KEY, 0),
    Column(TIME, _TIMEUUID, Kind.CLUSTERING, 0),
    Column(BATCH_SEQ_NO, Native("int"), Kind.CLUSTERING, 1),
    Column(OPERATION, Native("tinyint")),
    Column(TTL, Native("bigint")),
    Column(END_OF_BATCH, Native("boolean")),
)


def log_name(base_name: str) -> str:
    """The log table's name: in the base table's keyspace, case kept."""
    return base_name + LOG_SUFFIX


def log_table(base: Table, existing: Table | None = None) -> Table:
    """The log of `base`, brought up to date with its columns.

    An `existing` log keeps its id and properties; columns the base has dropped become
    dropped columns of the log.
    """
    columns = (*_META, *(log for column in base.columns for log in _log_columns(column)))
    if existing is None:
        return Table(
            base.keyspace,
            log_name(base.name),
            uuid1(),
            columns,
            options=_options(base),
            partitioner=CDC_PARTITIONER,
        )
    names = {column.name for column in columns}
    dropped = {
        log.name: (log.type, when)
        for name, (cql_type, when) in base.dropped.items()
        for log in _log_columns(Column(name, cql_type))
        if log.name not in names
    }
    return Table(
        base.keyspace,
        existing.name,
        existing.id,
        columns,
        options=existing.options,
        dropped={**existing.dropped, **dropped},
        partitioner=CDC_PARTITIONER,
    )


def logged_type(column: Column) -> CqlType:
    """The type of a base column in the log: collections become one cell, lists become maps."""
    match column.type:
        case ListType(element) if column.is_multi_cell:
            return MapType(_TIMEUUID, freeze(element), frozen=True)
        case _ if column.is_multi_cell:
            return freeze(column.type)
        case _:
            return column.type


def _log_columns(column: Column) -> Iterator[Column]:
    yield Column(column.name, logged_type(column))
    if column.is_key:
        return
    yield Column(DELETED + column.name, Native("boolean"))
    if column.is_multi_cell:
        yield Column(
            DELETED_ELEMENTS + column.name, SetType(_element_key(column.type), frozen=True)
        )


def _element_key(cql_type: CqlType) -> CqlType:
    match cql_type:
        case SetType(element):
            return freeze(element)
        case MapType(key):
            return freeze(key)
        case UserType():
            return Native("smallint")
        case _:
            return _TIMEUUID


def _options(base: Table) -> dict[str, object]:
    compaction = {"class": "TimeWindowCompactionStrategy"}
    options: dict[str, object] = {
        "comment": f"CDC log for {base.keyspace}.{base.name}",
        "caching": {"enabled": "false"},
        "compaction": compaction,
    }
    if base.cdc.ttl > 0:
        window = -(-base.cdc.ttl // 24)
        compaction |= {
            "compaction_window_size": str(-(-window // 60)),
            "compaction_window_unit": "MINUTES",
            "expired_sstable_check_frequency_seconds": str(max(1, window // 2)),
        }
        options["gc_grace_seconds"] = 0
    return options
