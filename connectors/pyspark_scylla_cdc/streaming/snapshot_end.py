"""Decides how much of the table a micro-batch of a snapshot reads.

The table is read in ring order, so one token marks what has been read. A micro-batch ends at the
end of a partition. To find the token of that partition, the driver counts the rows after the last
micro-batch. It counts at most `COUNTED` rows, and treats them as a sample of the rest: tokens are
hashes, so rows are spread evenly over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import evolve, field, frozen

from cdc_reader.cql.schema import ColumnKind, LogSchema
from cdc_reader.reading.ports import TOKEN, RowSource
from cdc_reader.streams.ring import TokenRange
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import table_of
from pyspark_scylla_cdc.spark_versions import TELLS_START

COUNTED = 100_000
"""The maximum number of rows to count; larger micro-batches are estimated from these rows."""
UNLIMITED = 10_000_000
"""The number of rows in a micro-batch without a limit: few enough to read again after a failure."""

Tokens = np.ndarray[Any, np.dtype[np.int64]]


@frozen(eq=False)
class RowsAhead:
    """The `tokens` of the next rows, in ring order; `is_all` is True if no other rows follow."""

    tokens: Tokens
    is_all: bool

    def end(self, start: int, limit: int) -> int:
        """Return the token of the last of `limit` rows after `start`, or MAX_TOKEN if none follow.

        The rows of a partition stay together, so a partition of more than `limit` rows is a
        micro-batch by itself.
        """
        rows = len(self.tokens)
        if rows > limit:
            whole = self.tokens[self.tokens < self.tokens[limit]]
            return int(whole[-1] if len(whole) else self.tokens[0])
        if self.is_all:
            return MAX_TOKEN
        return min(MAX_TOKEN, start + (int(self.tokens[-1]) - start) * limit // rows)

    def rows(self, start: int) -> int:
        """Return the estimated number of rows after `start`."""
        rows = len(self.tokens)
        if self.is_all:
            return rows
        return rows * (MAX_TOKEN - start) // (int(self.tokens[-1]) - start)


@frozen
class SnapshotEnd:
    """Decides where each micro-batch of a snapshot ends: after about the allowed number of rows."""

    _options: SourceOptions
    _schema: LogSchema = field(repr=False)

    @property
    def is_limited(self) -> bool:
        """True if a snapshot has several micro-batches when Spark's trigger allows it.

        Spark 4.0 and 4.1 do not say whether the query ends after the next micro-batch. Therefore,
        if the query sets no limit, that micro-batch contains the whole table, and the log as well.
        """
        return TELLS_START or (self._options.max_rows or self._options.max_bytes) is not None

    def next(self, start: int) -> int:
        """Return the token at which the micro-batch after `start` ends."""
        limit = self._limit(start)
        return self._ahead(start, min(limit, COUNTED)).end(start, limit)

    def rows(self) -> int:
        """Return the estimated number of rows in the table."""
        return self._ahead(MIN_TOKEN, COUNTED).rows(MIN_TOKEN)

    def _limit(self, start: int) -> int:
        options = self._options
        if options.max_bytes is None:
            return options.max_rows or UNLIMITED
        if (batch := next(_rows(options, self._schema, start), None)) is None:
            return 1
        fitting = max(1, int(options.max_bytes * batch.num_rows // batch.nbytes))
        return min(options.max_rows or fitting, fitting)

    def _ahead(self, start: int, most: int) -> RowsAhead:
        """Read the tokens of the rows after `start`, until there are more than `most`."""
        base = self._schema.base
        keys = evolve(self._schema, base=evolve(base, columns=base.partition_key))
        has_statics = bool(base.clustering and base.of_kind(ColumnKind.STATIC))
        found, rows = [np.empty(0, np.int64)], 0
        for batch in _rows(self._options, keys, start, tokens=True):
            tokens = batch.column(TOKEN).to_numpy()
            if has_statics:  # static columns become a row of each partition
                tokens = np.sort(np.concatenate([tokens, np.unique(tokens)]))
            found.append(tokens)
            rows += len(tokens)
            if rows > most:
                return RowsAhead(np.concatenate(found), is_all=False)
        return RowsAhead(np.concatenate(found), is_all=True)


def _rows(
    options: SourceOptions, schema: LogSchema, start: int, *, tokens: bool = False
) -> Iterator[pa.RecordBatch]:
    source: RowSource = table_of(options).rows(schema, tokens=tokens, tolerant=True)
    return source.read(TokenRange(start, MAX_TOKEN))
