"""Sinks, the targets of copies of tables: the interface, and shared functions."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Protocol

from attrs import evolve, field, frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    IntegerType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from cdc_reader._time import Micros
from cdc_reader.changes.folding.fold import DELETE, REPLACE, UPSERT
from cdc_reader.cql.names import without_case
from cdc_reader.errors import CheckpointError, ConfigurationError, SchemaError
from pyspark_scylla_cdc.tables.differences import Difference, differences
from pyspark_scylla_cdc.tables.own_names import OwnNames
from pyspark_scylla_cdc.tables.ranges import column, quoted

APPLICATION = "scylla_cdc_mirror"
"""The name under which targets record the micro-batches that they contain."""
_PLAN_BITS = 32
"""The size of `MicroBatch.plan`."""
MARKER = "scylla_cdc.inserted"
"""The property in which a target keeps the name of its marker."""
VERSION = VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
"""Columns of a copy with history, in which each row is a version of a row of the table."""


@frozen
class Layout:
    """The columns of a copy: the table's columns, in order, and which of them form the key.

    A copy with `history` also has the columns `VERSION`, and its key ends with `VALID_FROM`. The
    column `marker` is true for rows that an INSERT created, or that were in a snapshot: they remain
    when they lose their last value.
    """

    schema: StructType
    partition: Sequence[str]
    clustering: Sequence[str]
    statics: Sequence[str] = ()
    history: bool = False
    marker: str = ""

    @property
    def key(self) -> list[str]:
        """The columns of the primary key."""
        return [*self.partition, *self.clustering]

    @property
    def stored(self) -> StructType:
        """All columns of the copy."""
        return StructType([*self.schema, StructField(self.marker, BooleanType())])

    @property
    def table_columns(self) -> list[str]:
        """The columns of the table."""
        return [name for name in self.schema.names if not self.history or name not in VERSION]

    @property
    def values(self) -> list[str]:
        """The columns of the copy outside the key, without the marker."""
        return [name for name in self.schema.names if name not in self.key]

    @property
    def kind(self) -> str:
        """The column of updates with what to do: ``upsert``, ``replace`` or ``delete``."""
        return self._own.own("kind")

    @property
    def flag_names(self) -> dict[str, str]:
        """For each column of `values`, the column of updates that is true if the update sets it."""
        return {name: self._own.own(f"set_{at}") for at, name in enumerate(self.values)}

    @property
    def flags(self) -> StructType:
        """The columns that updates have in addition to those of the copy."""
        fields = [StructField(name, BooleanType()) for name in self.flag_names.values()]
        return StructType([StructField(self.kind, StringType()), *fields])

    @property
    def _own(self) -> OwnNames:
        return OwnNames.beside(self.stored.names)

    def marked(self, beside: Iterable[str] = ()) -> Layout:
        """Return the layout with a marker whose name no column has, nor is one of `beside`."""
        own = OwnNames.beside([*self.schema.names, *beside])
        return evolve(self, marker=own.own("inserted"))


@frozen
class MicroBatch:
    """The number of a micro-batch, the id of its query, and a digest of its plan.

    All come from the checkpoint. If an older checkpoint is restored, Spark plans micro-batches
    with the same numbers again, but for other changes.
    """

    query: str
    number: int
    plan: int
    snapshot: Micros | None = field(default=None, eq=False)
    """The position of a snapshot (µs) if the micro-batch contains rows of the snapshot only, none
    of which the copy can contain yet."""


class Sink(Protocol):
    """A target that holds a copy of one table, and records the last micro-batch written to it."""

    target: str
    """The path or the name of the target, for messages."""

    def prepare(self, layout: Layout) -> Layout:
        """Create the target, or check that an existing target can have this layout.

        Returns the layout with the target's marker. An existing target is not changed. Raises
        ConfigurationError if only one of the target and the layout has a history, and SchemaError
        if the target cannot get the layout's columns.
        """
        ...

    def add_columns(self, layout: Layout) -> None:
        """Add the columns, and the fields inside columns, that the target lacks.

        Records the name of the marker, if the target did not have one.
        """
        ...

    def last(self, query: str) -> MicroBatch | None:
        """Return the last micro-batch that the query with this id wrote, or None."""
        ...

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the rows of the copy."""
        ...

    def append(self, batch: MicroBatch, rows: DataFrame) -> None:
        """Add rows that the copy does not contain, and record the micro-batch, atomically."""
        ...

    def commit(self, batch: MicroBatch, layout: Layout, updates: DataFrame) -> None:
        """Update the rows of the copy, and record the micro-batch, atomically.

        `updates` have the columns of the copy and `layout.flags`; `cdc_reader.row_updates` says
        what they mean. The target may have columns that the layout lacks, because the table has
        dropped them: in these columns, rows keep their values.
        """
        ...


def application(query: str) -> str:
    """Return the name under which targets record the micro-batches of the query with this id."""
    return f"{APPLICATION}.{query}"


def version_of(batch: MicroBatch) -> int:
    """Encode a micro-batch as the version of a Delta transaction, a number that must increase."""
    return batch.number << _PLAN_BITS | batch.plan


def of_version(query: str, version: int | None) -> MicroBatch | None:
    """Return the micro-batch that `version_of` converted to this number."""
    if version is None:
        return None
    number = version >> _PLAN_BITS
    return MicroBatch(query, number, version - (number << _PLAN_BITS))


def has(sink: Sink, batch: MicroBatch, spark: SparkSession) -> bool:
    """Return whether the target already contains this micro-batch.

    Raises CheckpointError if the target lacks a micro-batch before this one, if its rows were
    written with another checkpoint, or if the checkpoint is older than the target.
    """
    last = sink.last(batch.query)
    if last == batch:
        return True
    done = -1 if last is None else last.number
    if batch.number <= done:
        raise CheckpointError(
            f"found micro-batch {batch.number} of an older checkpoint, but {sink.target} has "
            f"micro-batches up to {done}: give its newest checkpoint, or delete both to start over"
        )
    if batch.number != done + 1:
        raise CheckpointError(
            f"micro-batch {batch.number} does not follow {'none' if last is None else done}, the "
            f"last one in {sink.target}: target and checkpoint belong together; delete both to "
            "start over"
        )
    if last is None and not sink.rows(spark).isEmpty():
        raise CheckpointError(
            f"{sink.target} was written with another checkpoint: target and checkpoint belong "
            "together; delete both to start over"
        )
    return False


def as_in_target(target: str, layout: Layout, there: StructType, marker: str | None) -> Layout:
    """Check that a target with the columns `there` can have this layout; see `Sink.prepare`.

    Returns the layout with the target's `marker`, or with a new one if the target has none.
    """
    _check_history(layout, there.names)
    known = {name.lower() for name in there.names}
    for name in layout.key:
        if name.lower() not in known:
            raise SchemaError(
                f"{target} lacks key column {name}, and has the columns {', '.join(there.names)}: "
                "a key column of the table was renamed, or this is a copy of another table; delete "
                "target and checkpoint to start over"
            )
    for found in differences(there, layout.schema):
        _check_difference(target, found)
    if marker is None:
        return layout.marked(there.names)
    own = without_case(marker)
    if taken := [name for name in layout.schema.names if without_case(name) == own]:
        raise SchemaError(
            f"the table has gained a column {taken[0]}, and {target} uses this name for a column "
            "of its own: delete target and checkpoint to start over"
        )
    return evolve(layout, marker=marker)


IN_PARQUET = frozenset({"_tmp_metadata_row_index"})
"""Names that Spark's reader of Parquet files uses for columns of its own."""


def refuse_columns(target: str, schema: StructType, taken: Container[str], reader: str) -> None:
    """Raise ConfigurationError for a column with a name, in any case, that the reader takes."""
    if found := [name for name in schema.fieldNames() if without_case(name) in taken]:
        remedy = (
            f"column {found[0]} has a name that {reader} uses for a column of its own: leave it "
            "out with the option columns, or use another format"
        )
        raise ConfigurationError("target", target, remedy)


def refuse_append_only(target: str, properties: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a Delta table with properties that allow no updates."""
    if properties.get("delta.appendOnly", "false") == "true":
        remedy = "its property delta.appendOnly allows no updates: unset it, or give a new path"
        raise ConfigurationError("target", target, remedy)


def empty_in_partition(name: str) -> SchemaError:
    """Return the error for an empty text or blob by which a Delta table would be partitioned."""
    return SchemaError(
        f"column {name} has an empty value, which a Delta table that is partitioned by this column "
        "stores as null: give a target that is partitioned by other columns"
    )


def _check_difference(target: str, found: Difference) -> None:
    """Raise SchemaError if a target cannot keep values of the table's type."""
    old, new = found.old, found.new
    if old is None or (new is None and len(found.path) == 1):
        return  # a column or field that is added, or a column that was dropped
    if new is None:
        raise SchemaError(
            f"{target} has the field {found}, which the table's type lacks: the field was renamed; "
            "delete target and checkpoint to start over"
        )
    is_wider = isinstance(old, IntegerType) and isinstance(new, ByteType | ShortType)
    if not is_wider:  # in Iceberg
        raise SchemaError(
            f"{target} has {found} of type {old.simpleString()}, and the table's values are of "
            f"type {new.simpleString()}: delete target and checkpoint to start over"
        )


def _check_history(layout: Layout, there: Sequence[str]) -> None:
    known, wanted = ({name.lower() for name in each} for each in (there, layout.schema.names))
    has_versions = known.issuperset(VERSION)
    if has_versions != layout.history and not (has_versions and wanted.issuperset(VERSION)):
        remedy = f"the target was created with history={not layout.history}: give another target"
        raise ConfigurationError("history", layout.history, remedy)


def replaced(layout: Layout, before: DataFrame, after: DataFrame) -> DataFrame:
    """Return the updates that replace the rows `before` with the rows `after`."""
    own, kind = OwnNames.beside(layout.stored.names), layout.kind
    there = before.select(*(column(name).alias(own.other(name)) for name in layout.key))
    old = [column(own.other(name)) for name in layout.key]
    same = [column(key).eqNullSafe(it) for key, it in zip(layout.key, old, strict=True)]
    # A full join evaluates `after`, the result of a fold, only once.
    rows = after.withColumn(kind, sf.lit(REPLACE)).join(there, reduce(and_, same), "full")
    is_gone = column(kind).isNull()
    keys = {
        name: sf.when(is_gone, of_before).otherwise(column(name))
        for name, of_before in zip(layout.key, old, strict=True)
    }
    flags = dict.fromkeys(layout.flag_names.values(), sf.lit(True))
    kinds = {kind: sf.coalesce(column(kind), sf.lit(DELETE))}
    return rows.withColumns({**keys, **flags, **kinds}).drop(*map(own.other, layout.key))


@frozen
class Merge:
    """The parts of a merge of updates (`s`) into the rows of a copy (`t`), in SQL.

    They are the same for Spark and for deltalake.
    """

    layout: Layout

    @property
    def condition(self) -> str:
        """The condition that `s` and `t` are the same row; nulls count as equal.

        The clustering columns of static rows are null.
        """
        partition, clustering = (
            map(quoted, part) for part in (self.layout.partition, self.layout.clustering)
        )
        equal = [f"t.{name} = s.{name}" for name in partition]
        nullable = (f"(t.{it} IS NOT DISTINCT FROM s.{it})" for it in clustering)
        return " AND ".join([*equal, *nullable])

    @property
    def is_gone(self) -> str:
        """The condition that a row of the copy is no row of the table after its update."""
        marker = quoted(self.layout.marker)
        lost = [f"NOT s.{marker}", f"NOT COALESCE(t.{marker}, true)"]
        lost += [f"{self._after(name)} IS NULL" for name in self._regulars]
        is_upsert = self._is(UPSERT)
        return f"{self._is(DELETE)} OR ({is_upsert} AND {' AND '.join(lost)})"

    @property
    def is_new(self) -> str:
        """The condition that an update without a row in the copy makes one."""
        values = [f"s.{quoted(name)} IS NOT NULL" for name in self._regulars]
        found = " OR ".join([f"s.{quoted(self.layout.marker)}", *values])
        return f"{self._is(REPLACE)} OR ({self._is(UPSERT)} AND ({found}))"

    @property
    def updates(self) -> dict[str, str]:
        """The new value of each column of a row of the copy, without the key."""
        marker = quoted(self.layout.marker)
        kept = f"s.{marker} OR ({self._is(UPSERT)} AND COALESCE(t.{marker}, true))"
        return {
            **{name: self._after(name) for name in self.layout.values},
            self.layout.marker: kept,
        }

    @property
    def inserts(self) -> dict[str, str]:
        """The value of each column of a new row."""
        return {name: f"s.{quoted(name)}" for name in self.layout.stored.names}

    @property
    def _regulars(self) -> list[str]:
        return [name for name in self.layout.values if name not in self.layout.statics]

    def _after(self, name: str) -> str:
        flag = quoted(self.layout.flag_names[name])
        return f"CASE WHEN s.{flag} THEN s.{quoted(name)} ELSE t.{quoted(name)} END"

    def _is(self, kind: str) -> str:
        return f"s.{quoted(self.layout.kind)} = '{kind}'"
