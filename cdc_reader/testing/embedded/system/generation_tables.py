"""The tables that describe generations to clients; they are stored, so tests can write them."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from cdc_reader.testing.embedded.codec.order import join_cells
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.storage.cell import Cell
from cdc_reader.testing.embedded.storage.database import Database
from cdc_reader.testing.embedded.storage.partition import Partition
from cdc_reader.testing.embedded.system.definitions import (
    GENERATION_TIMESTAMPS,
    SCYLLA_43_DESCRIPTIONS,
    STREAMS_DESCRIPTIONS,
)
from cdc_reader.testing.embedded.topology.generation import Generation


@frozen
class GenerationTables:
    """The description tables since 4.4: one with a row per token range, one with timestamps."""

    catalog: Catalog
    database: Database

    def describe(self, generation: Generation, rows: int | None = None) -> None:
        """Write the streams of each token range, or of the first `rows` ranges, in shard order."""
        table = self.catalog.table(*STREAMS_DESCRIPTIONS)
        described = Partition(table, (_timestamp(generation),))
        for span in generation.ranges[:rows]:
            row = described.row((span.range_end.to_bytes(8, "big", signed=True),))
            row.set_marker(Cell(generation.start_us, b""))
            row.set_cell("streams", Cell(generation.start_us, stream_set(span.streams)))
        self.database.apply(described)

    def announce(self, generation: Generation) -> None:
        """Write the timestamp, which shows clients that the description is complete."""
        announced = Partition(self.catalog.table(*GENERATION_TIMESTAMPS), (b"timestamps",))
        announced.row((_timestamp(generation),)).set_marker(Cell(generation.start_us, b""))
        self.database.apply(announced)


@frozen
class Scylla43GenerationTable:
    """The description table up to 4.3, which has one row per generation."""

    catalog: Catalog
    database: Database

    def describe(self, generation: Generation, rows: int | None = None) -> None:
        """Do nothing, because `announce` writes the description and the timestamp as one row."""

    def announce(self, generation: Generation) -> None:
        """Write the generation's timestamp and all its streams."""
        table = self.catalog.table(*SCYLLA_43_DESCRIPTIONS)
        announced = Partition(table, (_timestamp(generation),))
        row = announced.row(())
        row.set_marker(Cell(generation.start_us, b""))
        streams = [stream for span in generation.ranges for stream in span.streams]
        row.set_cell("streams", Cell(generation.start_us, stream_set(streams)))
        self.database.apply(announced)


def stream_set(streams: Sequence[bytes]) -> bytes:
    """Serialize a ``set<blob>`` in shard order, which clients rely on."""
    return len(streams).to_bytes(4, "big") + join_cells(list(streams))


def _timestamp(generation: Generation) -> bytes:
    return generation.timestamp.to_bytes(8, "big", signed=True)
