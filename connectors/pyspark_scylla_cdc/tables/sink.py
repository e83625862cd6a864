"""Sinks, the targets of copies of tables: the interface, and shared functions."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa
from attrs import evolve, field, frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ByteType, IntegerType, ShortType, StructType

from cdc_reader._time import Micros
from cdc_reader.copies.properties import (
    APPLICATION,
    BUCKET,
    NO_BUCKETS,
    OWN,
    STATE,
    refuse_copy_of_command,
)
from cdc_reader.copies.refusals import (
    lacks_key,
    of_earlier_version,
    other_type,
    renamed_field,
    taken_name,
)
from cdc_reader.cql.names import without_case
from cdc_reader.errors import CheckpointError, ConfigurationError
from pyspark_scylla_cdc.tables.differences import Difference, differences, fitted
from pyspark_scylla_cdc.tables.layout import VERSION, Layout
from pyspark_scylla_cdc.tables.row_updates import FewChanges

_PLAN_BITS = 32
"""The size of `MicroBatch.plan`."""
BUCKETS = f"{APPLICATION}.buckets"
"""The name under which a target records how many buckets it has, from the second one on."""


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
    since: Micros | None = field(default=None, eq=False)
    """The position (µs) that the copy has reached before, or None for the first micro-batch."""


@frozen
class Files:
    """The files of a bucket."""

    count: int
    """The number of files, those that list deleted rows included."""
    rows: int
    """The number of rows, or of files if the format does not know it."""
    size: int
    """The size of the files, in bytes."""


class Sink(Protocol):
    """A target that holds a copy of one table, and records the last micro-batch written to it."""

    target: str
    """The path or the name of the target, for messages."""
    few: FewChanges
    """Folds small micro-batches in this process."""

    def prepare(self, layout: Layout) -> Layout:
        """Create the target, or check that an existing target can have this layout.

        Returns the layout with the target's own columns. An existing target is not changed. Raises
        ConfigurationError if only one of the target and the layout has a history, and SchemaError
        if the target cannot get the layout's columns.
        """
        ...

    def add_columns(self, layout: Layout) -> None:
        """Add the columns, and the fields inside columns, that the target lacks.

        Records the names of the target's own columns, if it did not have them.
        """
        ...

    def last(self, query: str) -> MicroBatch | None:
        """Return the last micro-batch that the query with this id wrote, or None."""
        ...

    def buckets(self) -> int:
        """Return the number of buckets; 1 for a target without buckets."""
        ...

    def set_buckets(self, count: int, spark: SparkSession) -> None:
        """Record that the copy, which is empty, has this many buckets."""
        ...

    def divide(self, layout: Layout, rows: DataFrame, replacing: Collection[int]) -> None:
        """Replace all rows of some buckets by `rows`, and record `layout.buckets`, atomically.

        `rows` have the columns of the copy.
        """
        ...

    def rows(self, spark: SparkSession, buckets: Collection[int] | None = None) -> DataFrame:
        """Return the rows of the copy, or those in the given buckets, without their buckets."""
        ...

    def append(self, batch: MicroBatch, layout: Layout, rows: DataFrame) -> Micros | None:
        """Add rows that the copy does not contain, and record the micro-batch, atomically.

        Returns when the first of their values expires, or None if none does.
        """
        ...

    def commit(
        self,
        batch: MicroBatch,
        layout: Layout,
        updates: DataFrame | pa.Table,
        spark: SparkSession,
    ) -> Micros | None:
        """Update the rows of the copy, and record the micro-batch, atomically.

        Returns when the first of the updates' values expires, or None if none does.

        `updates` have the columns of the copy and `layout.flags`; `cdc_reader.row_updates` says
        what they mean. The target may have columns that the layout lacks, because the table has
        dropped them: in these columns, rows keep their values. Raises RowsNeeded if one of the
        updates is of kind `NEEDED`.
        """
        ...

    def files(self, spark: SparkSession) -> dict[int, Files]:
        """Return the files of each bucket; those of a target without buckets are all in 0."""
        ...

    def compact(self, layout: Layout, buckets: Sequence[int]) -> None:
        """Rewrite these buckets into few files."""
        ...

    def clean(self, spark: SparkSession) -> None:
        """Remove files that no version of the target within the format's retention uses."""
        ...


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Give a micro-batch's session these settings for a while. No other session has them."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, given in before.items():
            if given is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, given)


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
    if last is None and any(each.rows for each in sink.files(spark).values()):
        raise CheckpointError(
            f"{sink.target} was written with another checkpoint: target and checkpoint belong "
            "together; delete both to start over"
        )
    return False


def as_in_target(
    target: str, layout: Layout, there: StructType, properties: Mapping[str, str]
) -> Layout:
    """Check that a target with these columns can have this layout; see `Sink.prepare`.

    Returns the layout with the target's own columns, or with a new state if the target has none.
    """
    refuse_copy_of_command(target, properties)
    _check_history(layout, there.names)
    known = {name.lower() for name in there.names}
    for name in layout.key:
        if name.lower() not in known:
            raise lacks_key(target, name, there.names)
    for found in differences(there, layout.schema):
        _check_difference(target, found)
    state, bucket = properties.get(STATE), properties.get(BUCKET)
    if any(name.startswith(OWN) for name in properties) and not (state and bucket):
        raise of_earlier_version(target)
    if state is None or bucket is None:
        return layout.with_state(there.names)
    owned = {without_case(name) for name in (state, bucket)}
    if taken := [name for name in layout.schema.names if without_case(name) in owned]:
        raise taken_name(target, taken[0])
    return evolve(layout, state=state, bucket=None if bucket == NO_BUCKETS else bucket)


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


def _check_difference(target: str, found: Difference) -> None:
    """Raise SchemaError if a target cannot keep values of the table's type."""
    old, new = found.old, found.new
    if old is None or (new is None and len(found.path) == 1):
        return  # a column or field that is added, or a column that was dropped
    if new is None:
        raise renamed_field(target, str(found))
    is_wider = isinstance(old, IntegerType) and isinstance(new, ByteType | ShortType)
    if not is_wider:  # in Iceberg
        raise other_type(target, str(found), old.simpleString(), new.simpleString())


def _check_history(layout: Layout, there: Sequence[str]) -> None:
    known, wanted = ({name.lower() for name in each} for each in (there, layout.schema.names))
    has_versions = known.issuperset(VERSION)
    if has_versions != layout.history and not (has_versions and wanted.issuperset(VERSION)):
        remedy = f"the target was created with history={not layout.history}: give another target"
        raise ConfigurationError("history", layout.history, remedy)


def present_rows(
    sink: Sink, layout: Layout, spark: SparkSession, buckets: Collection[int] | None = None
) -> DataFrame:
    """Return the rows of the copy with the columns of a row, or those in the given buckets."""
    rows = sink.rows(spark, buckets)
    columns = fitted(rows, layout.row)
    return rows.select(*(each.alias(name) for name, each in columns.items()))
