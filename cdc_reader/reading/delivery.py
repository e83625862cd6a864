"""The items that a followed log yields: batches of rows, and completed windows."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa
from attrs import field, frozen

from cdc_reader._time import Micros
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import LogSchema
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.streams.window import Window


def name_of_table(schema: LogSchema) -> str:
    """Return the base table's name, which stands for the schema in the repr of a delivery."""
    return str(schema.base.name)


@frozen
class RowsRead:
    """A batch of rows written in `window`, in which the rows of each stream are in order.

    A `late` batch contains strays, or rows that are delivered after rows of the same streams with
    higher keys.
    """

    schema: LogSchema = field(repr=name_of_table)
    window: Window
    batch: pa.RecordBatch
    late: bool = False

    @property
    def table(self) -> TableName:
        """The base table."""
        return self.schema.base.name


@frozen
class WindowComplete:
    """The end of a window: every row of `window` has been delivered.

    `checkpoint` may be saved once everything delivered so far is acknowledged. A reader that
    follows from it resumes after this delivery. If `late` is True, the window was searched for late
    rows, and the position is unchanged. `queries` is the number of queries for the window, not
    counting further pages. `undelivered` is the number of late rows that the search found, but did
    not deliver.
    """

    schema: LogSchema = field(repr=name_of_table)
    window: Window
    checkpoint: Checkpoint
    late: bool = False
    queries: int = 0
    undelivered: int = 0

    @property
    def table(self) -> TableName:
        """The base table."""
        return self.schema.base.name

    @property
    def position(self) -> Micros:
        """The checkpoint's position, in µs: every row written before it has been delivered."""
        return self.checkpoint.position


Delivery: TypeAlias = RowsRead | WindowComplete
"""An item of a followed log: rows, or the end of a window. Use `match` to distinguish them."""
