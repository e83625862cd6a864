"""The schema of a base table's log: its name, columns and properties."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from cdc_reader.cql.names import LOG_SUFFIX
from cdc_reader.cql.schema import (
    BATCH_SEQ_NO,
    DELETED_PREFIX,
    END_OF_BATCH,
    OPERATION,
    REMOVED_PREFIX,
    STREAM_ID,
    TIME,
    TTL,
)
from cdc_reader.cql.types import CqlType, ListType, MapType, Native, SetType, UserType, freeze
from cdc_reader.testing.embedded.codec.token import CDC_PARTITIONER
from cdc_reader.testing.embedded.profile import Profile
from cdc_reader.testing.embedded.schema.table import Column, Kind, Table, new_id

_TIMEUUID = Native("timeuuid")
_META: tuple[Column, ...] = (
    Column(STREAM_ID, Native("blob"), Kind.PARTITION_KEY, 0),
    Column(TIME, _TIMEUUID, Kind.CLUSTERING, 0),
    Column(BATCH_SEQ_NO, Native("int"), Kind.CLUSTERING, 1),
    Column(OPERATION, Native("tinyint")),
    Column(TTL, Native("bigint")),
)
_END_OF_BATCH = Column(END_OF_BATCH, Native("boolean"))


def log_name(base_name: str) -> str:
    """Return the name of a base table's log, which is in the same keyspace."""
    return base_name + LOG_SUFFIX


def log_table(base: Table, profile: Profile, now_us: int) -> Table:
    """Return a new log table for `base`, as a server of this version creates it."""
    return Table(
        base.keyspace,
        log_name(base.name),
        new_id(now_us),
        _columns(base, profile),
        options=_options(base),
        partitioner=CDC_PARTITIONER,
        altered_us=base.altered_us,
    )


def follow(log: Table, base: Table, now_us: int, profile: Profile) -> Table:
    """Return the log, with the same id, updated to match its base table.

    Versions that keep a disabled log also record the columns dropped from it. The properties are
    reset to those of a new log, unless the version leaves them unchanged.
    """
    columns = _columns(base, profile)
    names = {column.name for column in columns}
    lost = {c.name: (c.type, now_us) for c in log.columns if c.name not in names}
    return evolve(
        log,
        columns=columns,
        options=log.options if profile.keeps_log_properties else _options(base),
        dropped={**log.dropped, **lost} if profile.keeps_disabled_log else {},
        altered_us=now_us,
    )


def logged_type(column: Column) -> CqlType:
    """Return a base column's type in the log: collections are frozen, lists become maps."""
    match column.type:
        case ListType(element) if column.is_multi_cell:
            return MapType(_TIMEUUID, freeze(element), frozen=True)
        case _ if column.is_multi_cell:
            return freeze(column.type)
        case _:
            return column.type


def _columns(base: Table, profile: Profile) -> tuple[Column, ...]:
    meta = (*_META, _END_OF_BATCH) if profile.end_of_batch else _META
    return (*meta, *(log for column in base.columns for log in _log_columns(column)))


def _log_columns(column: Column) -> Iterator[Column]:
    yield Column(column.name, logged_type(column))
    if column.is_key:
        return
    yield Column(DELETED_PREFIX + column.name, Native("boolean"))
    if column.is_multi_cell:
        yield Column(REMOVED_PREFIX + column.name, SetType(_element_key(column.type), frozen=True))


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
