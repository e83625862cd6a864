"""A row as selectors, filters and conditions see it: values by column name."""

from __future__ import annotations

from attrs import define

from cdc_reader.testing.embedded.query.elements import join
from cdc_reader.testing.embedded.schema.table import Column, Kind
from cdc_reader.testing.embedded.storage.cell import Cell
from cdc_reader.testing.embedded.storage.row import LiveRow, LiveValue


@define(frozen=True)
class RowView:
    """One row of a result: partition key, static row, and clustering row if there is one.

    `now` is the moment of reading in seconds, for the rest of a TTL.
    """

    key: tuple[bytes, ...]
    static: LiveRow
    row: LiveRow | None
    now: int

    def live(self, column: Column) -> LiveValue | None:
        """The live cell or cells of a column outside the key."""
        source = self.static if column.kind is Kind.STATIC else self.row
        return None if source is None else source.cells.get(column.name)

    def value(self, column: Column) -> bytes | None:
        """A column's value in serialised form."""
        if column.kind is Kind.PARTITION_KEY:
            return self.key[column.position]
        if column.kind is Kind.CLUSTERING:
            return self.row.key[column.position] if self.row is not None else None
        live = self.live(column)
        if live is None:
            return None
        return live.value if isinstance(live, Cell) else join(column.type, live)
