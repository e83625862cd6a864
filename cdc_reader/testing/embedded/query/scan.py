"""Scans the rows of a SELECT in order, from the end of the previous page."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from cdc_reader.testing.embedded.codec.token import MAX_TOKEN, MIN_TOKEN, token_of
from cdc_reader.testing.embedded.query.keys import ExactKeys
from cdc_reader.testing.embedded.query.model import Execution
from cdc_reader.testing.embedded.query.paging import PagingState
from cdc_reader.testing.embedded.query.ports import TableSource
from cdc_reader.testing.embedded.query.readers import Cells, Found, Intervals, Reader
from cdc_reader.testing.embedded.query.where import Where
from cdc_reader.testing.embedded.schema.table import Table
from cdc_reader.testing.embedded.storage.database import RingPosition
from cdc_reader.testing.embedded.storage.partition import Partition
from cdc_reader.testing.embedded.storage.position import AFTER, BEFORE, position


@frozen
class Scan:
    """Scans partitions by key or in token order, and rows in clustering order or its reverse."""

    table: Table
    source: TableSource
    where: Where
    reader: Reader
    reverse: bool = False

    def partitions(
        self, execution: Execution, after: PagingState | None
    ) -> Iterator[tuple[Partition, Iterator[Found]]]:
        """Yield each partition with its rows, starting after the position `after`."""
        ranges = self.where.clustering.ranges(execution)
        places = [each.positions(self.table) for each in ranges]
        intervals: Intervals = places[::-1] if self.reverse else places
        for partition in self._from(execution, after):
            rest, resumes = intervals, after is not None and partition.key == after.key
            if after is not None and resumes:
                rest = self._behind(intervals, after)
            yield partition, self._rows(partition, rest, execution, shows_static=not resumes)

    def _rows(
        self, partition: Partition, intervals: Intervals, execution: Execution, shows_static: bool
    ) -> Iterator[Found]:
        empty = True
        for found in self.reader.rows(partition, intervals, execution, self.reverse):
            empty = False
            yield found
        if empty and shows_static and self.where.clustering.is_open:
            static: Cells | None = self.reader.static_row(partition, execution)
            if static is not None:
                yield None, static

    def _behind(self, intervals: Intervals, after: PagingState) -> Intervals:
        """Return the parts of the intervals that follow the row at `after`."""
        sort_keys, key = self.table.clustering_sort_keys, after.clustering or ()
        if self.reverse:
            gap = position(sort_keys, key, BEFORE)
            return [(lower, min(upper, gap)) for lower, upper in intervals if lower < gap]
        gap = position(sort_keys, key, AFTER)
        return [(max(lower, gap), upper) for lower, upper in intervals if gap < upper]

    def _from(self, execution: Execution, after: PagingState | None) -> Iterator[Partition]:
        for partition in self._all(execution, after):
            if after is None or after.clustering is not None or partition.key != after.key:
                yield partition

    def _all(self, execution: Execution, after: PagingState | None) -> Iterator[Partition]:
        """Yield the partitions, starting with the partition of `after`."""
        if isinstance(self.where.keys, ExactKeys):
            yield from self._exact(self.where.keys, execution, after)
            return
        bounds = self.where.keys.bounds(execution)
        if bounds is None:
            return
        first, last = bounds
        place: RingPosition = (MIN_TOKEN, ())
        if after is not None:
            place = (token_of(self.table.partitioner, after.key), after.key)
        lower, upper = max(first, place[0]), last
        whole = (lower, upper) == (MIN_TOKEN, MAX_TOKEN)
        tokens = (None, None) if whole else (lower, upper)
        for token, partition in self.source.partitions(self.table, *tokens):
            if (token, partition.key) >= place:
                yield partition

    def _exact(
        self, exact: ExactKeys, execution: Execution, after: PagingState | None
    ) -> Iterator[Partition]:
        keys = exact.keys(execution)
        if after is not None:
            keys = keys[keys.index(after.key) :] if after.key in keys else []
        for key in keys:
            partition = self.source.partition(self.table, key)
            if partition is not None:
                yield partition
