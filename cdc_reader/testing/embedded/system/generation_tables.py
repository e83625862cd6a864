"""The two tables in which clients find generations: stored, so that a test may write them too."""

from __future__ import annotations

from attrs import frozen

from cdc_reader.testing.embedded.codec.order import join_cells
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.storage.cell import Cell
from cdc_reader.testing.embedded.storage.database import Database
from cdc_reader.testing.embedded.storage.partition import Partition
from cdc_reader.testing.embedded.system.definitions import (
    GENERATION_TIMESTAMPS,
    STREAMS_DESCRIPTIONS,
)
from cdc_reader.testing.embedded.topology.generation import Generation, StreamRange


@frozen
class GenerationTables:
    """Publishes generations as the server does: all streams first, then the timestamp."""

    catalog: Catalog
    database: Database

    def publish(self, generation: Generation) -> None:
        """Make a generation visible to clients."""
        self.describe(generation)
        self.announce(generation)

    def describe(self, generation: Generation) -> None:
        """Write the streams of each token range, in shard order."""
        table = self.catalog.table(*STREAMS_DESCRIPTIONS)
        described = Partition(table, (_timestamp(generation),))
        for span in generation.ranges:
            row = described.row((span.range_end.to_bytes(8, "big", signed=True),))
            row.set_marker(Cell(generation.start_us, b""))
            row.set_cell("streams", Cell(generation.start_us, _streams(span)))
        self.database.apply(described)

    def announce(self, generation: Generation) -> None:
        """Write the timestamp: from now on clients may rely on the streams."""
        announced = Partition(self.catalog.table(*GENERATION_TIMESTAMPS), (b"timestamps",))
        announced.row((_timestamp(generation),)).set_marker(Cell(generation.start_us, b""))
        self.database.apply(announced)


def _timestamp(generation: Generation) -> bytes:
    return generation.timestamp.to_bytes(8, "big", signed=True)


def _streams(span: StreamRange) -> bytes:
    return len(span.streams).to_bytes(4, "big") + join_cells(list(span.streams))
