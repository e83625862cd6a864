"""Recorded logs as batches, and small log schemas, for tests of changes."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
from attrs import frozen

from cdc_reader.changes.change import Change
from cdc_reader.changes.grouping import Grouping
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import CdcOptions, Column, ColumnKind, LogSchema, TableSchema
from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    UserType,
    freeze,
    is_multi_cell,
    parse,
)
from cdc_reader.decoding import decode
from tests.cdc_reader.decoding.wire import body_of, page_of
from tests.recordings.comparison import Result
from tests.recordings.loading import read_recording

HISTORIES = Path(__file__).parents[2] / "data" / "scylla-5.2-histories.json.gz"
U = UserType("ks", "u", (("x", parse("int")), ("y", parse("text"))))
_META = (
    Column("cdc$stream_id", parse("blob"), ColumnKind.PARTITION_KEY, 0),
    Column("cdc$time", parse("timeuuid"), ColumnKind.CLUSTERING, 0),
    Column("cdc$batch_seq_no", parse("int"), ColumnKind.CLUSTERING, 1),
    Column("cdc$operation", parse("tinyint")),
    Column("cdc$ttl", parse("bigint")),
    Column("cdc$end_of_batch", parse("boolean")),
)
KEYS = (
    Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0),
    Column("ck", parse("int"), ColumnKind.CLUSTERING, 0),
)
BASE = (
    *KEYS,
    Column("a", parse("int")),
    Column("b", parse("text")),
    Column("l", parse("list<int>")),
    Column("s", parse("set<int>")),
    Column("m", parse("map<int, text>")),
    Column("un", U),
    Column("fr", parse("frozen<list<int>>")),
    Column("st", parse("int"), ColumnKind.STATIC),
    Column("ss", parse("set<text>"), ColumnKind.STATIC),
)
"""The columns of the base table of the recorded histories."""


def log_schema(*base: Column, cdc: CdcOptions = CdcOptions(enabled=True)) -> LogSchema:  # noqa: B008 - a frozen value
    """Return the schema of the log of a base table ks.t with these columns."""
    logged = itertools.chain.from_iterable(map(_logged, base))
    return LogSchema(TableSchema(TableName("ks", "t"), base, cdc), (*_META, *logged))


def _logged(column: Column) -> list[Column]:
    """Return the log's columns for one base column."""
    if column.kind in (ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING):
        return [Column(column.name, column.type)]
    deleted = Column(f"cdc$deleted_{column.name}", parse("boolean"))
    if not is_multi_cell(column.type):
        return [Column(column.name, column.type), deleted]
    value, removed = _logged_types(column.type)
    elements = Column(f"cdc$deleted_elements_{column.name}", SetType(removed, frozen=True))
    return [Column(column.name, value), deleted, elements]


def _logged_types(cql_type: CqlType) -> tuple[CqlType, CqlType]:
    match cql_type:
        case ListType(element):
            return MapType(Native("timeuuid"), freeze(element), frozen=True), Native("timeuuid")
        case MapType(key):
            return freeze(cql_type), freeze(key)
        case SetType(element):
            return freeze(cql_type), freeze(element)
        case _:
            return freeze(cql_type), Native("smallint")


@frozen
class History:
    """A recorded history: the rows of its log, with their schema."""

    schema: LogSchema
    recorded: dict[str, Any]
    rows: list[list[bytes | None]]

    def batch(self, start: int = 0, end: int | None = None) -> pa.RecordBatch:
        """Return a slice of the log's rows, by default all, as one batch."""
        return decode(page_of(body_of(*self.rows[start:end]), self.schema.columns))

    def changes(self) -> list[Change]:
        """Return all changes in the log."""
        grouping = Grouping(self.schema)
        return grouping.feed(self.batch()) + grouping.finish()


@functools.cache
def histories() -> list[History]:
    """Return three histories: without images, with both kinds of images, and with full images."""
    return [_history(recorded) for recorded in read_recording(HISTORIES)]


def _history(recorded: dict[str, Any]) -> History:
    schema = log_schema(*BASE)
    log = Result.from_recording(recorded["log"])
    places = [log.column(column.name) for column in schema.columns]
    return History(schema, recorded, [[row[place] for place in places] for row in log.rows])
