"""The columns of a copy, and what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve, frozen
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cdc_reader.changes.folding import events, history
from cdc_reader.changes.frames import columns as names
from cdc_reader.copies.columns import CopyColumns, OwnNames, quoted, state_beside
from cdc_reader.cql.names import without_case
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.tables.buckets import bucket_of
from pyspark_scylla_cdc.tables.keys import refuse_equal_names, refuse_keys

VERSION = VALID_FROM, VALID_TO, IS_CURRENT = events.VALID_FROM, history.VALID_TO, "is_current"
"""Columns of a copy with history, in which each row is a version of a row of the table."""


@frozen
class Layout:
    """The columns of a copy: the table's columns, in order, and which of them form the key.

    A copy with `history` also has the columns `VERSION`, and its key ends with `VALID_FROM`.

    A copy has two columns of its own. For the column `state`, see `cdc_reader.copies.row_state`.
    The column `bucket` partitions the copy, see `pyspark_scylla_cdc.tables.buckets`; a target that
    `mirror` did not create has its own partitions instead.
    """

    schema: StructType
    partition: Sequence[str]
    clustering: Sequence[str]
    statics: Sequence[str] = ()
    history: bool = False
    state: str = ""
    bucket: str | None = None
    buckets: int = 1
    """The number of buckets."""

    @property
    def columns(self) -> CopyColumns:
        """The names of the columns."""
        return CopyColumns(
            self.schema.names,
            self.partition,
            self.clustering,
            self.statics,
            self.state,
            self.bucket,
        )

    @property
    def key(self) -> list[str]:
        """The columns of the primary key."""
        return self.columns.key

    @property
    def row(self) -> StructType:
        """The columns of a row: all columns of the copy except the bucket."""
        return StructType([*self.schema, StructField(self.state, StringType())])

    @property
    def stored(self) -> StructType:
        """All columns of the copy."""
        if self.bucket is None:
            return self.row
        return StructType([*self.row, StructField(self.bucket, IntegerType())])

    @property
    def table_columns(self) -> list[str]:
        """The columns of the table."""
        return [name for name in self.schema.names if not self.history or name not in VERSION]

    @property
    def kind(self) -> str:
        """The column of updates with what to do: ``upsert``, ``replace`` or ``delete``."""
        return self.columns.kind

    @property
    def flag_names(self) -> dict[str, str]:
        """For each column outside the key, that of updates which is true if the update sets it."""
        return self.columns.flags

    @property
    def flags(self) -> StructType:
        """The columns that updates have in addition to those of the copy."""
        fields = [StructField(name, BooleanType()) for name in self.flag_names.values()]
        return StructType([StructField(self.kind, StringType()), *fields])

    @property
    def updates(self) -> StructType:
        """The columns of updates."""
        found = StructType([*self.row, *self.flags])
        return found if self.bucket is None else found.add(self.bucket, IntegerType())

    def place(self, key: Sequence[str] | None = None) -> list[str]:
        """Return in SQL what places a row: its bucket, or its partition key without buckets.

        `key` are the columns of the partition key if rows have them under other names.
        """
        key = self.partition if key is None else key
        return [*map(quoted, key)] if self.bucket is None else [bucket_of(key, self.buckets)]

    def placed(self, rows: DataFrame) -> DataFrame:
        """Return the rows with their buckets, if the copy has buckets."""
        if self.bucket is None:
            return rows
        return rows.withColumns({self.bucket: sf.expr(self.place()[0])})

    def with_own_columns(self) -> Layout:
        """Return the layout of a new target, with names for its own columns that no column has."""
        names = self.schema.names
        bucket = OwnNames.beside(names).own("bucket")
        return evolve(self, state=state_beside(names), bucket=bucket)

    def with_state(self, beside: Iterable[str]) -> Layout:
        """Return the layout of a target with the columns `beside`, and partitions of its own."""
        return evolve(self, state=state_beside([*self.schema.names, *beside]), bucket=None)


def column(name: str) -> Column:
    """Return the column with exactly this name, which may contain any characters."""
    return sf.col(quoted(name))


def layout_of(
    changes: DataFrame, *, history: bool = False, spark: SparkSession | None = None
) -> Layout:
    """Return the layout of a copy, from the schema of a table's changes.

    Names may differ only in case if `spark` is given and distinguishes them.

    Raises ConfigurationError if the table has a column whose name the history needs, and
    SchemaError if Spark cannot compare its keys.
    """
    fields = [each for each in changes.schema if each.name not in names.ALL]
    kinds = {each.name: each.metadata.get("cql.kind") for each in fields}
    plain = [StructField(each.name, each.dataType) for each in fields]
    partition, clustering = (
        [name for name, found in kinds.items() if found == kind]
        for kind in ("partition_key", "clustering")
    )
    refuse_equal_names(fields, spark)
    refuse_keys(field for field in fields if field.name in {*partition, *clustering})
    statics = [name for name, found in kinds.items() if found == "static" and clustering]
    if not history:
        return Layout(StructType(plain), partition, clustering, statics)
    if taken := [name for name in kinds if without_case(name) in VERSION]:
        remedy = (
            f"the table has a column {taken[0]}, a name that the history needs: leave history out"
        )
        raise ConfigurationError("history", history, remedy)
    types = {VALID_FROM: TimestampType(), VALID_TO: TimestampType(), IS_CURRENT: BooleanType()}
    plain += [StructField(name, types[name]) for name in VERSION]
    return Layout(StructType(plain), partition, [*clustering, VALID_FROM], statics, history)
