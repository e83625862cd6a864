"""Reads partitions of a table again, as changes that replace what a copy has of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen

from cdc_reader._arrow import valid
from cdc_reader._time import Clock, Micros
from cdc_reader.changes.frames import cells_for
from cdc_reader.changes.frames import columns as names
from cdc_reader.changes.frames.changes import ChangesFormat
from cdc_reader.changes.json import cell_to_json
from cdc_reader.changes.lifetimes import Lifetimes
from cdc_reader.cluster.values import token_of
from cdc_reader.config import DataLossMode, ReadConfig
from cdc_reader.cql.json import from_json
from cdc_reader.cql.schema import Column, ColumnKind, LogSchema
from cdc_reader.cql.types import Native, UserType, is_multi_cell, parts
from cdc_reader.cql.values import converter
from cdc_reader.decoding import arrow_type
from cdc_reader.reading.cursor import Checkpoint, SnapshotProgress
from cdc_reader.reading.ports import FixedStreams, SnapshotTable
from cdc_reader.reading.snapshot import SnapshotReader
from cdc_reader.streams.ring import WHOLE_RING, TokenRange, TokenRanges
from cdc_reader.table_snapshot import FixedSchema, split_rows

_PARTS, _SHORTEST = 4, 1_000_000
_UNBOUNDED = (Native("decimal"), Native("varint"))


@frozen
class Rereading:
    """Reads partitions of a table in format ``changes``, with the columns of `schema`."""

    table: SnapshotTable
    log: LogSchema
    output: ChangesFormat
    schema: pa.Schema
    config: ReadConfig
    clock: Clock

    def partitions(
        self,
        keys: pa.RecordBatch,
        tokens: Iterable[int],
        horizons: Iterable[Micros | None] = repeat(None),
    ) -> Iterator[pa.RecordBatch]:
        """Yield for each partition a delete, and then the rows that it has now.

        `keys` have the columns of the partition key, in the types of the format. A partition that
        they have twice is read once. The delete and the rows have the present as their write time.
        The server does not tell the TTLs of elements and row markers. Rows of which only these may
        expire are to be read again before the `horizon` (µs) of their partition, if there is one.
        """
        done: set[int] = set()
        for place, (token, horizon) in enumerate(zip(tokens, horizons, strict=False)):
            if token in done:
                continue
            done.add(token)
            now = self.clock.now()
            yield self.output.deletes(keys.slice(place, 1), self.schema, [now])
            for rows in self._rows(TokenRange(token - 1, token), now + 1):
                yield rows if horizon is None else self._until(rows, horizon, now)

    def tokens(self, keys: pa.RecordBatch) -> Iterator[int]:
        """Return the tokens of partitions, whose keys are in the types of the format or the log.

        Numbers of the type decimal must be in the log's type or text, because their scale counts.
        """
        base = self.log.base
        cells = {it.name: _values(it, keys.column(it.name)) for it in base.partition_key}
        for place in range(keys.num_rows):
            yield token_of(base, {name: values[place] for name, values in cells.items()})

    def _rows(self, tokens: TokenRange, position: Micros) -> Iterator[pa.RecordBatch]:
        generations = FixedStreams(lambda _: ())
        table = FixedSchema(self.table, self.log, self.output.is_tolerant, generations)
        # Losses of the log do not matter here.
        config = evolve(self.config, data_loss=DataLossMode.CONTINUE)
        done = WHOLE_RING.without(TokenRanges((tokens,)))
        progress = SnapshotProgress(position, generation=position, done=done)
        start = Checkpoint(position, snapshot=progress)
        cells = cells_for(self.schema.names)
        reader = SnapshotReader(table, self.clock, config, start, cells=cells)
        return self.output.snapshot(split_rows(reader.deliveries()), self.schema, position)

    def _until(self, rows: pa.RecordBatch, horizon: Micros, now: Micros) -> pa.RecordBatch:
        """Return the rows; those with unknown TTLs expire in part after a quarter of the time.

        The row marker of any of them may last until the horizon.
        """
        there = {*rows.schema.names}
        values = [it for it in self.log.base.of_kind(ColumnKind.REGULAR) if it.name in there]
        has_elements, is_bare = np.zeros(len(rows), bool), np.ones(len(rows), bool)
        for column in values:
            given = valid(rows.column(column.name))
            is_bare &= ~given
            if is_multi_cell(column.type):
                has_elements |= given
        place = rows.schema.get_field_index(names.EXPIRES)
        known = Lifetimes.of_column(rows.column(place))
        soon = min(horizon, now + max((horizon - now) // _PARTS, _SHORTEST))
        first = np.where(has_elements | is_bare, np.minimum(known.first, soon), known.first)
        found = Lifetimes(first, np.maximum(known.last, horizon), known.whole)
        return rows.set_column(place, rows.schema.field(place), found.column())


def can_be_read_again(column: Column, *, is_text: bool) -> bool:
    """Return whether partitions can be found by this column of their key.

    Decimals are found if the column, which has no other values then, is text.
    """
    inner = [*parts(column.type)]
    if any(isinstance(part, UserType) for part in inner):
        return False
    return Native("decimal") not in inner or is_text


def _values(column: Column, cells: pa.Array) -> list[object]:
    """Convert cells of a key column, in the types of the format or the log, to the driver's."""
    kind = arrow_type(column.type)
    if cells.type != kind and any(part in _UNBOUNDED for part in parts(column.type)):
        return [from_json(column.type, cell_to_json(cell)) for cell in cells]
    return [*converter(column.type)(cells.cast(kind))]
