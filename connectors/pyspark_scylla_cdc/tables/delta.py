"""A copy in a Delta table, written by deltalake, which does not need Spark."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_reader.cql.names import without_case
from cdc_reader.errors import ConfigurationError, SchemaError
from pyspark_scylla_cdc.tables.differences import new_fields
from pyspark_scylla_cdc.tables.layout import Layout
from pyspark_scylla_cdc.tables.merging import NEEDED, Merge, RowsNeeded, among
from pyspark_scylla_cdc.tables.own_names import OwnNames
from pyspark_scylla_cdc.tables.ranges import column, quoted
from pyspark_scylla_cdc.tables.sink import (
    BUCKET,
    BUCKETS,
    IN_PARQUET,
    MARKER,
    NO_BUCKETS,
    Files,
    MicroBatch,
    application,
    as_in_target,
    empty_in_partition,
    of_version,
    own_properties,
    refuse_append_only,
    refuse_columns,
    version_of,
)

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, Schema

_COMPUTED = frozenset(("delta.generationExpression", "delta.identity.start"))
"""What the metadata of a generated column contains."""

_FIRST_DAY, _LAST_DAY = -96_465_292, 95_026_236
"""The first and the last date that deltalake can write, in days since 1970."""


class DeltaLakeSink:
    """A `Sink` that writes to the Delta table at a path.

    One commit writes the rows and records the micro-batch.

    The rows that a micro-batch touches pass through the driver's memory.
    """

    def __init__(self, path: str) -> None:
        try:
            import deltalake
        except ImportError:
            remedy = (
                "install deltalake (pip install 'scylla-cdc[lake]'), or use a session with Delta "
                "Lake's extension"
            )
            raise ConfigurationError("format", "delta", remedy) from None
        if re.search(r"%[0-9A-Fa-f]{2}|\\", path):
            remedy = "deltalake changes backslashes, and '%' with two digits: leave them out"
            raise ConfigurationError("target", path, remedy)
        self._deltalake = deltalake
        self.target = path

    def prepare(self, layout: Layout) -> Layout:
        """See `Sink.prepare`."""
        _refuse_backticks(self.target, layout.schema)
        refuse_columns(self.target, layout.schema, IN_PARQUET, "Spark's reader of Parquet files")
        new = layout.with_own_columns()
        self._deltalake.DeltaTable.create(
            self.target,
            schema=self._schema(new.stored),
            mode="ignore",
            partition_by=new.bucket,
            configuration=own_properties(new),
            raise_if_key_not_exists=False,
        )
        table = self._table()
        there = _schema_of(table)
        _refuse_case(self.target, layout.schema, there)
        layout = as_in_target(self.target, layout, there, table.metadata().configuration)
        for field in new_fields(there, layout.schema):
            if field.in_map:
                raise SchemaError(
                    f"{self.target} lacks the field {field}, which the table's type "
                    "has gained inside a map, and deltalake cannot add it: delete target and "
                    "checkpoint to start over, or use a session with Delta Lake's extension"
                )
        return layout

    def add_columns(self, layout: Layout) -> None:
        """See `Sink.add_columns`."""
        table = self._table()
        if MARKER not in table.metadata().configuration:
            table.alter.set_table_properties(own_properties(layout), raise_if_not_exists=False)
        if new_fields(_schema_of(table), layout.stored):
            nothing = pa.schema(self._schema(layout.stored).to_arrow()).empty_table()
            self._deltalake.write_deltalake(table, nothing, mode="append", schema_mode="merge")

    def last(self, query: str) -> MicroBatch | None:
        """See `Sink.last`."""
        return of_version(query, self._table().transaction_version(application(query)))

    def buckets(self) -> int:
        """See `Sink.buckets`."""
        return self._table().transaction_version(BUCKETS) or 1

    def rebucket(
        self,
        layout: Layout,
        count: int,
        rows: DataFrame | None = None,
        replacing: Collection[int] = (),
    ) -> None:
        """See `Sink.rebucket`."""
        table, noted = self._table(), self._noted(BUCKETS, count)
        if rows is None:
            self._append(table, pa.schema(table.schema().to_arrow()).empty_table(), noted)
            return
        self._deltalake.write_deltalake(
            table,
            rows.toArrow(),
            mode="overwrite",
            predicate=among(layout, replacing),
            commit_properties=noted,
        )

    def rows(self, spark: SparkSession, buckets: Collection[int] | None = None) -> DataFrame:
        """See `Sink.rows`."""
        table = self._table()
        own = table.metadata().configuration.get(BUCKET, NO_BUCKETS)
        schema, partitions = _schema_of(table), table.metadata().partition_columns
        stored = StructType([field for field in schema if field.name not in partitions])
        actions = pa.table(table.get_add_actions(flatten=False))
        if own in partitions and buckets is not None:
            place = pc.struct_field(actions.column("partition"), own)
            actions = actions.filter(pc.is_in(place.cast(pa.int32()), pa.array([*buckets])))
        if not actions.num_rows:  # Spark would warn that no path is left
            return spark.createDataFrame([], stored if own in partitions else schema)
        files = (_literal(f"{self.target.rstrip('/')}/{path}") for path in _paths(actions))
        rows = spark.read.schema(stored).parquet(*files)
        if not partitions or own in partitions:
            return rows
        return _with_partitions(rows, actions, table)

    def append(self, batch: MicroBatch, rows: DataFrame) -> None:
        """See `Sink.append`."""
        self._append(self._table(), rows.toArrow(), self._done(batch))

    def commit(self, batch: MicroBatch, layout: Layout, updates: DataFrame) -> None:
        """See `Sink.commit`."""
        rows, table = updates.toArrow(), self._table()
        buckets = _values(rows, layout.bucket)
        if NEEDED in _values(rows, layout.kind):
            needed = rows.filter(pc.equal(rows.column(layout.kind), NEEDED))
            keys = updates.sparkSession.createDataFrame(needed.select(layout.partition))
            raise RowsNeeded(keys, _values(needed, layout.bucket) if layout.bucket else None)
        if not rows.num_rows:  # a merge without rows would not commit
            self._append(table, rows.drop_columns(layout.flags.names), self._done(batch))
            return
        _check(rows, table)
        merge = Merge(layout, buckets)
        (
            table.merge(
                rows,
                merge.condition,
                source_alias="s",
                target_alias="t",
                commit_properties=self._done(batch),
            )
            .when_matched_delete(merge.is_gone)
            .when_matched_update({quoted(name): it for name, it in merge.updates.items()})
            .when_not_matched_insert(
                {quoted(name): it for name, it in merge.inserts.items()}, merge.is_new
            )
            .execute()
        )

    def files(self, spark: SparkSession) -> dict[int, Files]:  # noqa: ARG002 - not by Spark
        """See `Sink.files`."""
        table = self._table()
        own = table.metadata().configuration.get(BUCKET, NO_BUCKETS)
        actions = pa.table(table.get_add_actions(flatten=False))
        place = pa.array([0] * len(actions), pa.int32())
        if own != NO_BUCKETS:
            place = pc.struct_field(actions.column("partition"), own)
        rows = pc.fill_null(actions.column("num_records"), 1)
        counted = pa.table(
            {"num_records": rows, "size_bytes": actions.column("size_bytes"), "place": place}
        )
        sums = counted.group_by("place").aggregate(
            [("num_records", "sum"), ("size_bytes", "sum"), ([], "count_all")]
        )
        return {
            int(row["place"]): Files(
                row["count_all"], row["num_records_sum"], row["size_bytes_sum"]
            )
            for row in sums.to_pylist()
        }

    def compact(self, layout: Layout, buckets: Sequence[int]) -> None:
        """See `Sink.compact`."""
        assert layout.bucket is not None  # noqa: S101 - only copies with buckets are compacted
        some = (layout.bucket, "in", [str(number) for number in buckets])
        self._table().optimize.compact(partition_filters=[some])

    def clean(self) -> None:
        """See `Sink.clean`."""
        self._table().vacuum(dry_run=False)

    def _append(self, table: DeltaTable, rows: pa.Table, noted: CommitProperties) -> None:
        _check(rows, table)
        self._deltalake.write_deltalake(table, rows, mode="append", commit_properties=noted)

    def _done(self, batch: MicroBatch) -> CommitProperties:
        """Return the properties of a commit that record the micro-batch."""
        return self._noted(application(batch.query), version_of(batch))

    def _noted(self, name: str, version: int) -> CommitProperties:
        done = self._deltalake.Transaction(name, version)
        return self._deltalake.CommitProperties(app_transactions=[done])

    def _schema(self, schema: StructType) -> Schema:
        return self._deltalake.Schema.from_json(schema.json())  # Delta writes schemas as Spark does

    def _table(self) -> DeltaTable:
        """Return the table; raise ConfigurationError if it cannot be read and written as files."""
        table = self._deltalake.DeltaTable(self.target)
        if found := [*_not_plain(table)]:
            remedy = (
                f"the table has {' and '.join(found)}, with which its files cannot be read or "
                "written alone: use a session with Delta Lake's extension, or give a new path"
            )
            raise ConfigurationError("target", self.target, remedy)
        refuse_append_only(self.target, table.metadata().configuration)
        return table


def _check(rows: pa.Table, table: DeltaTable) -> None:
    """Raise SchemaError for values that the table cannot have."""
    for name in rows.schema.names:
        _refuse_dates(name, rows.column(name).combine_chunks())
    for name in table.metadata().partition_columns:
        if name in rows.schema.names and _has_empty(rows.column(name)):
            raise empty_in_partition(name)


def _not_plain(table: DeltaTable) -> Iterator[str]:
    """Yield what the table has that its Parquet files do not show."""
    features = {*(table.protocol().reader_features or ())}
    if "deletionVectors" in features:
        yield "deletion vectors"
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if "columnMapping" in features or mode != "none":
        yield "mapped columns"
    if any(_COMPUTED.intersection(field.metadata) for field in table.schema().fields):
        yield "generated columns"


def _paths(actions: pa.Table) -> list[str]:
    """Return the paths of a table's files, below its own; its log has them percent-encoded."""
    return [unquote(path) for path in actions.column("path").to_pylist()]


def _literal(path: str) -> str:
    """Return a pattern that only this path matches: Spark takes the paths of files as patterns."""
    return re.sub(r"([\[\]{}*?])", r"\\\1", path)


def _with_partitions(rows: DataFrame, actions: pa.Table, table: DeltaTable) -> DataFrame:
    """Add the columns by which the table is partitioned: only its log contains their values."""
    names = [path.rpartition("/")[2] for path in _paths(actions)]
    if len(names) != len({*names}):
        remedy = "files in two of its partitions have the same name: give a new path"
        raise ConfigurationError("target", table.table_uri, remedy)
    types = pa.schema(table.schema().to_arrow())
    file = OwnNames.beside(types.names).own("file")
    cells = pa.RecordBatch.from_struct_array(actions.column("partition").combine_chunks())
    values = {name: cells.column(name).cast(types.field(name).type) for name in cells.schema.names}
    files = rows.sparkSession.createDataFrame(pa.table({**values, file: names}))
    located = rows.withColumn(file, rows.metadataColumn("_metadata")["file_name"])
    found = located.join(sf.broadcast(files), file)
    return found.select(*map(column, types.names))


def _refuse_backticks(target: str, schema: StructType) -> None:
    """Raise ConfigurationError for names that deltalake cannot quote."""
    if taken := [name for name in schema.fieldNames() if "`" in name]:
        remedy = (
            f"column {taken[0]} has a backtick in its name, which deltalake cannot quote: leave it "
            "out with the option columns, or use a session with Delta Lake's extension"
        )
        raise ConfigurationError("target", target, remedy)


def _refuse_case(target: str, schema: StructType, there: StructType) -> None:
    """Raise ConfigurationError for columns that only deltalake distinguishes from the target's."""
    known = {without_case(name): name for name in there.names}
    for name in schema.names:
        if (other := known.get(without_case(name), name)) != name:
            remedy = (
                f"it has a column {other}, and the table a column {name}, which deltalake "
                "distinguishes: use a session with Delta Lake's extension, or give a new path"
            )
            raise ConfigurationError("target", target, remedy)


def _has_empty(cells: pa.ChunkedArray) -> bool:
    """Return whether one of the cells is an empty text or blob."""
    if not (pa.types.is_string(cells.type) or pa.types.is_binary(cells.type)):
        return False
    found: bool | None = pc.any(pc.equal(pc.binary_length(cells), 0)).as_py()
    return bool(found)


def _refuse_dates(name: str, cells: pa.Array) -> None:
    """Raise SchemaError for dates that deltalake cannot write."""
    if pa.types.is_struct(cells.type):
        for number in range(cells.type.num_fields):
            _refuse_dates(name, cells.field(number))
    if not pa.types.is_date32(cells.type):
        return
    bounds = pc.min_max(cells.cast(pa.int32()))
    first, last = bounds["min"].as_py(), bounds["max"].as_py()
    if first is not None and not _FIRST_DAY <= first <= last <= _LAST_DAY:
        raise SchemaError(
            f"column {name} has a date outside the years -262143 to 262142, which deltalake cannot "
            "write: leave the column out with the option columns, or use a session with Delta "
            "Lake's extension"
        )


def _values(rows: pa.Table, name: str | None) -> set[Any]:
    """Return the different values of a column."""
    return set() if name is None else {*pc.unique(rows.column(name)).to_pylist()}


def _schema_of(table: DeltaTable) -> StructType:
    return from_arrow_schema(pa.schema(table.schema().to_arrow()))
