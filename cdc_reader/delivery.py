"""What following a log hands on: batches of rows, and the word that a window is complete."""

from __future__ import annotations

import pyarrow as pa
from attrs import field, frozen

from cdc_reader.ids import TableName
from cdc_reader.schema import LogSchema
from cdc_reader.window import Window


@frozen
class Delivery:
    """A batch of `window`'s rows; or, with no batch, the word that the window is complete.

    A `late` batch holds rows that came to light behind others of their streams that were
    delivered before; what is late never moves the position. `generation` and `swept` are
    what a `Checkpoint` that is taken once all so far is acknowledged says of them.
    """

    schema: LogSchema = field(repr=lambda schema: str(schema.base.name))
    window: Window
    batch: pa.RecordBatch | None = None
    late: bool = False
    generation: int | None = None
    swept: int | None = None
    queries: int = 0
    """How many queries the window took, pages after the first of each left out."""

    @property
    def table(self) -> TableName:
        """The base table."""
        return self.schema.base.name

    @property
    def complete(self) -> bool:
        return self.batch is None

    @property
    def position(self) -> int:
        """The position, in µs, up to which the log is delivered once the window is."""
        return self.window.end
