"""Groups log rows into changes. The rows of a record may span pages."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from cdc_reader.changes.change import Change
from cdc_reader.changes.columns import LogPage, layout_of
from cdc_reader.changes.page import ChangePage
from cdc_reader.changes.records import ChangeRows, RecordBuffer, Records
from cdc_reader.cql.schema import LogSchema
from cdc_reader.decoding import Entries
from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete


class Grouping:
    """Turns the batches of one read, given in order, into changes.

    A record that spans pages is held until its other rows arrive. Use one grouping for the batches
    of each task, and call `finish` at the end. Extra columns of a batch are ignored. `late` is the
    value of `Change.late` for all changes.
    """

    def __init__(self, schema: LogSchema, *, late: bool = False) -> None:
        self._late = late
        self._layout = layout_of(schema)
        self._records = RecordBuffer()

    def feed(self, batch: pa.RecordBatch) -> list[Change]:
        """Return the changes of all records that this batch completes, in order."""
        return list(self.each(batch))

    def each(self, batch: pa.RecordBatch) -> Entries[Change]:
        """Return an iterator over the changes that `feed` returns; each is made on request.

        The call itself consumes the batch, before the first `next`.
        """
        return self._changes(self._records.feed(batch))

    def rest(self) -> Entries[Change]:
        """Return an iterator over the changes that `finish` returns; each is made on request."""
        return self._changes(self._records.finish())

    def finish(self) -> list[Change]:
        """Return the changes of the record that is still held; the grouping can then be used again.

        These changes are not complete, because the read ended before their record did. However, all
        changes in logs of ScyllaDB before 4.3, which do not mark the end of a record, count as
        complete.
        """
        return list(self.rest())

    def _changes(self, records: Records | None) -> Entries[Change]:
        if records is None:
            return Entries(Change, None, 0)
        log = LogPage(self._layout, records.batch, late=self._late)
        changes = ChangeRows.of(records, self._layout.schema.base)
        return Entries(Change, ChangePage(log, changes), changes.count)


class TableChanges:
    """Groups the rows of one table's deliveries into changes; late rows are grouped separately."""

    def __init__(self) -> None:
        self._schema: LogSchema | None = None
        self._groupings: dict[bool, Grouping] = {}

    def feed(self, delivery: Delivery) -> list[Change]:
        """Return the changes that this delivery completes.

        The end of a window completes all changes that are still held.
        """
        return [change for part in self.each(delivery) for change in part]

    def each(self, delivery: Delivery) -> Iterator[Entries[Change]]:
        """Yield the changes that `feed` returns, in parts; each change is made when requested."""
        if isinstance(delivery, WindowComplete):
            yield from self._rest()
            return
        if delivery.schema is not self._schema:  # no record spans two schemas
            self._schema = delivery.schema
            yield from self._rest()
        yield self._grouping(delivery).each(delivery.batch)

    def _grouping(self, delivery: RowsRead) -> Grouping:
        if delivery.late not in self._groupings:
            self._groupings[delivery.late] = Grouping(delivery.schema, late=delivery.late)
        return self._groupings[delivery.late]

    def _rest(self) -> Iterator[Entries[Change]]:
        """Yield the changes that are still held."""
        groupings, self._groupings = self._groupings, {}
        for grouping in groupings.values():
            yield grouping.rest()
