"""What following a log yields: batches of rows, and notices that a window is complete."""

from __future__ import annotations

import pyarrow as pa
from attrs import field, frozen

from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import LogSchema
from cdc_reader.streams.window import Window


@frozen
class Delivery:
    """A batch of `window`'s rows or, without a batch, a notice that the window is complete.

    A `late` batch holds strays, or rows that follow delivered rows of their stream with higher
    keys. A late delivery never moves the position. `generation` and `late_scan_at` are the values
    for a `Checkpoint` taken once everything delivered so far is acknowledged.
    """

    schema: LogSchema = field(repr=lambda schema: str(schema.base.name))
    window: Window
    batch: pa.RecordBatch | None = None
    late: bool = False
    generation: int | None = None
    late_scan_at: int | None = None
    queries: int = 0
    """The number of queries for the window, without follow-up pages."""

    @property
    def table(self) -> TableName:
        """The base table."""
        return self.schema.base.name

    @property
    def complete(self) -> bool:
        return self.batch is None

    @property
    def position(self) -> int:
        """The end of the window, in µs: the new position once the window is delivered."""
        return self.window.end
