"""Groups the log rows of each `Change`; a record's rows may span pages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from cdc_reader import decoding
from cdc_reader.changes.change import Change
from cdc_reader.changes.columns import LogPage, layout_of
from cdc_reader.changes.page import ChangePage
from cdc_reader.changes.records import ChangeRows, RecordBuffer, Records
from cdc_reader.cql.schema import LogSchema
from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete


class Grouping:
    """Turns the batches of one read, given in order, into changes.

    A record that spans pages is held until its other rows arrive. Use one grouping for each task's
    batches, and call `finish` at the end. Extra columns of a batch are ignored. `late` is the
    value of `Change.late` for all changes.
    """

    def __init__(self, schema: LogSchema, *, late: bool = False) -> None:
        self._late = late
        self._layout = layout_of(schema)
        self._records = RecordBuffer()

    def feed(self, batch: pa.RecordBatch) -> list[Change]:
        """Return the changes of all records that this batch completes, in order."""
        return list(self.each(batch))

    def each(self, batch: pa.RecordBatch) -> Iterator[Change]:
        """Like `feed`, but make each change when it is asked for.

        The batch is taken in by the call itself, before the first `next`.
        """
        return self._changes(self._records.feed(batch))

    def finish(self) -> list[Change]:
        """Return the changes of the record held; then the grouping can be used again.

        They are not `complete`, because the read ended before their record did. Before ScyllaDB
        4.3, logs do not mark the end of a record; their changes count as complete.
        """
        return list(self._changes(self._records.finish()))

    def _changes(self, records: Records | None) -> Iterator[Change]:
        if records is None:
            return iter(())
        log = LogPage(self._layout, records.batch, late=self._late)
        changes = ChangeRows.of(records, self._layout.schema.base)
        return decoding.entries(Change, ChangePage(log, changes), changes.count)


class TableChanges:
    """Groups the rows of one table's deliveries into changes, and late rows separately."""

    def __init__(self) -> None:
        self._schema: LogSchema | None = None
        self._groupings: dict[bool, Grouping] = {}

    def feed(self, delivery: Delivery) -> list[Change]:
        """Return the changes that this delivery completes; at a window's end, all that remain."""
        if isinstance(delivery, WindowComplete):
            return self._finish()
        return self._of_schema_before(delivery) + self._grouping(delivery).feed(delivery.batch)

    def each(self, delivery: Delivery) -> Iterator[Change]:
        """Like `feed`, but make the changes lazily; see `Grouping.each`."""
        if isinstance(delivery, WindowComplete):
            return iter(self._finish())
        left = self._of_schema_before(delivery)
        return chain(left, self._grouping(delivery).each(delivery.batch))

    def _of_schema_before(self, delivery: RowsRead) -> list[Change]:
        """Return the changes still held from the previous schema: no record spans two schemas."""
        if delivery.schema is self._schema:
            return []
        self._schema = delivery.schema
        return self._finish()

    def _grouping(self, delivery: RowsRead) -> Grouping:
        if delivery.late not in self._groupings:
            self._groupings[delivery.late] = Grouping(delivery.schema, late=delivery.late)
        return self._groupings[delivery.late]

    def _finish(self) -> list[Change]:
        left = [change for grouping in self._groupings.values() for change in grouping.finish()]
        self._groupings = {}
        return left
