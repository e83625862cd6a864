"""Reads a partition of a snapshot: the base table's rows in a token range, or a mark."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
from attrs import evolve

from cdc_reader._time import Clock
from cdc_reader.changes.frames import cells_for
from cdc_reader.changes.frames.changes import ChangesFormat
from cdc_reader.config import DataLossMode
from cdc_reader.cql.schema import LogSchema
from cdc_reader.reading.cursor import Checkpoint, SnapshotProgress
from cdc_reader.reading.ports import FixedStreams
from cdc_reader.reading.snapshot import SnapshotReader
from cdc_reader.streams.generation import StreamGroup
from cdc_reader.streams.ring import WHOLE_RING, TokenRanges
from cdc_reader.table_snapshot import FixedSchema, split_rows
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.snapshot import MarkPartition, SnapshotPartition
from pyspark_scylla_cdc.schema import part_of
from pyspark_scylla_cdc.sessions import snapshot_format, table_of


def snapshot_rows(
    options: SourceOptions,
    schema: LogSchema,
    names: Collection[str],
    partition: SnapshotPartition,
    clock: Clock,
) -> Iterator[pa.RecordBatch]:
    """Yield the base table's rows in the requested format, with the columns `names`."""
    output = snapshot_format(options, schema)
    owners = tuple(StreamGroup(end, ()) for end in partition.ends)  # the driver sent the ranges
    generations = FixedStreams(lambda _: owners)
    table = FixedSchema(table_of(options), schema, output.is_tolerant, generations)
    # The driver judges losses of the log: a planned micro-batch returns its rows.
    read = evolve(options.read, data_loss=DataLossMode.CONTINUE)
    reader = SnapshotReader(table, clock, read, _only(partition), cells=cells_for(names))
    rows = split_rows(reader.deliveries())
    return output.snapshot(rows, part_of(output.schema, names), partition.position)


def marks(
    options: SourceOptions, schema: LogSchema, names: Collection[str], partition: MarkPartition
) -> Iterator[pa.RecordBatch]:
    """Yield the snapshot mark of the partition; yield nothing unless the format is `changes`."""
    output = snapshot_format(options, schema)
    if isinstance(output, ChangesFormat):
        yield output.mark(partition.kind, part_of(output.schema, names), partition.position)


def _only(partition: SnapshotPartition) -> Checkpoint:
    """Return a checkpoint in the middle of a snapshot, with only this partition still unread."""
    done = WHOLE_RING.without(TokenRanges((partition.tokens,)))
    progress = SnapshotProgress(partition.position, generation=partition.position, done=done)
    return Checkpoint(partition.position, snapshot=progress)
