"""Determines all versions of the rows that changes affect: slowly changing dimensions, type 2.

Each change that affects a row begins a new version of the row. A row's state at a time is what
`fold` would return for the changes up to that time. All states are computed at once: events are
paired with the rows that they affect, and each value is carried from pair to pair of a row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from attrs import frozen

from cdc_reader._arrow import Mask, to_arrow, valid
from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.changes.arrays import NONE, Indices, any_of_each, at_rows, pick
from cdc_reader.changes.folding.events import OF_PARTITION, OF_ROW, VALID_FROM, WRITE, events_of
from cdc_reader.changes.folding.fold import DELETE, REPLACE
from cdc_reader.changes.folding.rows import TouchedRows
from cdc_reader.changes.frames import columns as names
from cdc_reader.changes.frames.commit_time import TIMESTAMP
from cdc_reader.changes.lifetimes import Lifetimes
from cdc_reader.cql.schema import ColumnKind, TableSchema

VALID_TO = "valid_to"
"""The column that says when a version of a row ended; null for the current version."""


def versions(table: TableSchema, changes: pa.Table, current: pa.Table | None) -> pa.Table:
    """Return how to update the versions of rows in a copy, after `changes`.

    `changes` have format ``changes``, read with ``include_delta``, without marks of snapshots, and
    `current` are the copy's current versions in the partitions that they touch. The result has the
    columns that `fold` returns, `valid_from`, `valid_to` and `_change_type`, which is ``replace``
    or ``delete``. Versions are identified by their keys and `valid_from`.

    A version of a row ends when the next change affects the row: a change of the row itself or of
    its static columns, or a delete. If several changes of one row have the same time, only the last
    of them begins a version. Times never decrease: a change that is older than the current version
    replaces that version. Raises the errors of `fold`.
    """
    return _History(table, changes, current).updates()


@frozen(eq=False)
class _States:
    """States of rows, each from a time on, until the next state of its row.

    A static row's states are those of the static columns of its partition.
    """

    row: Indices
    since: Indices
    until: Indices
    """FOREVER for the last state of a row."""
    last: dict[str, Indices]
    """For each column, the event that wrote the value, or NONE."""
    inserted: Mask

    def at(self, places: Indices | Mask) -> _States:
        """Return some of the states."""
        last = {name: events[places] for name, events in self.last.items()}
        return _States(
            self.row[places], self.since[places], self.until[places], last, self.inserted[places]
        )


class _History(TouchedRows):
    def __init__(self, table: TableSchema, changes: pa.Table, current: pa.Table | None) -> None:
        super().__init__(table, events_of(table, changes, current))
        events = self._events
        self._begun = np.full(self._count, BEGINNING)
        np.maximum.at(self._begun, self._of_row, events.begun)
        self._row, self._event = self._pairs()
        starts = np.flatnonzero(np.diff(self._row, prepend=NONE))
        self._start = np.repeat(starts, np.diff([*starts, len(self._row)]))
        """For each pair, the place of the first pair of its row."""
        kind = events.kind[self._event]
        self._is_own = self._of_row[self._event] == self._row
        self._is_write = kind == WRITE
        self._deleted = self._last_place(~self._is_write)
        """For each pair, the place of the last delete of its row up to it, or NONE."""
        self._all_deleted = self._last_place(kind == OF_PARTITION)

    def updates(self) -> pa.Table:
        """Return the versions that have changed, and those that are gone."""
        states = self._states()
        is_static = self._is_static[states.row]
        exists = states.inserted | self._any_value(states, is_static=False)
        found = [states.at(np.flatnonzero(~is_static & exists))]
        if self._has_static_rows:
            found.append(self._alone(states.at(np.flatnonzero(is_static)), found[0]))
        touched = self._any_of_pairs(~self._events.is_old[self._event])
        shown = [self._shown(each.at(touched[each.row])) for each in found]
        return pa.concat_tables([*shown, self._gone(found, touched)], promote_options="default")

    def _pairs(self) -> tuple[Indices, Indices]:
        """Pair rows with the events that affect them, in the order of rows and then of events."""
        events = self._events
        own = np.flatnonzero(np.isin(events.kind, (WRITE, OF_ROW)))
        pairs = [(self._of_row[own], own)]
        wide = events.kind == OF_PARTITION
        if self._has_static_rows:
            wide |= (events.kind == WRITE) & self._is_static[self._of_row]
        pairs.append(self._with_rows(np.flatnonzero(wide)))
        pairs += [(rows, np.full(len(rows), event)) for event, rows in self._range_deletes()]
        row, event = (np.concatenate(each).astype(np.int64) for each in zip(*pairs, strict=True))
        order = np.lexsort((event, row))
        row, event = row[order], event[order]
        is_first = np.ones(len(row), bool)
        is_first[1:] = (row[1:] != row[:-1]) | (event[1:] != event[:-1])
        return row[is_first], event[is_first]

    def _with_rows(self, wide: Indices) -> tuple[Indices, Indices]:
        """Pair events with all rows of their partitions."""
        order = np.argsort(self._partition, kind="stable")
        counts = np.bincount(self._partition, minlength=self._partitions)
        firsts = np.cumsum(counts) - counts
        partition = self._of_partition[wide]
        each = counts[partition]
        within = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
        rows: Indices = order[np.repeat(firsts[partition], each) + within]
        return rows, np.repeat(wide, each)

    def _last_place(self, wanted: Mask) -> Indices:
        """Return for each pair the place of the last wanted pair of its row up to it, or NONE."""
        places = np.maximum.accumulate(np.where(wanted, np.arange(len(wanted)), NONE))
        found: Indices = np.where(places >= self._start, places, NONE)
        return found

    def _states(self) -> _States:
        """Return the state of each row after each time at which an event affects it."""
        times = np.where(self._events.is_old, BEGINNING, self._events.times)[self._event]
        since = np.maximum(times, self._begun[self._row])
        ends, until = _spans(self._row, since)
        row, since = self._row[ends], since[ends]
        inserts = self._last_place(self._events.inserts[self._event] & self._is_own)
        last = {name: events[ends] for name, events in self._last_writes()}
        return _States(row, since, until, last, (inserts > self._deleted)[ends])

    def _last_writes(self) -> Iterator[tuple[str, Indices]]:
        """Yield for each column and each pair the event that wrote the value of then, or NONE."""
        times = np.append(self._events.times[self._event], FOREVER)
        is_of_static = self._is_static[self._of_row[self._event]]
        for number, column in enumerate(self._events.values):
            is_static = self._has_static_rows and column.kind is ColumnKind.STATIC
            wanted = self._is_write & self._events.sets[self._event, number]
            wanted &= is_of_static if is_static else self._is_own
            deleted = self._all_deleted if is_static else self._deleted
            nulls = wanted & ~valid(self._events.column(column.name))[self._event]
            last, last_null = self._last_place(wanted), self._last_place(nulls)
            is_tie = (last_null != NONE) & (times[last_null] == times[last])
            place = np.where(is_tie, last_null, last)
            yield column.name, np.where(place > deleted, self._event[place], NONE)

    def _alone(self, statics: _States, rows: _States) -> _States:
        """Return the static rows at the times at which their partitions have no other rows."""
        has_end = np.flatnonzero(rows.until != FOREVER)
        count, none = len(statics.row), np.full(len(rows.row) + len(has_end), NONE)
        partition = self._partition[np.concatenate([statics.row, rows.row, rows.row[has_end]])]
        time = np.concatenate([statics.since, rows.since, rows.until[has_end]])
        more = np.concatenate([np.zeros(count), np.ones(len(rows.row)), -np.ones(len(has_end))])
        state = np.concatenate([np.arange(count), none])
        order = np.lexsort((time, partition))
        partition, time, more, state = (it[order] for it in (partition, time, more, state))
        starts = np.flatnonzero(np.diff(partition, prepend=NONE))
        start = np.repeat(starts, np.diff([*starts, len(partition)]))
        places = np.maximum.accumulate(np.where(state != NONE, np.arange(len(state)), NONE))
        state = np.where(places >= start, state[places], NONE)
        there = np.cumsum(more)
        there -= np.append(there, 0)[start - 1]
        ends, until = _spans(partition, time)
        is_alone = np.flatnonzero((there[ends] == 0) & (state[ends] != NONE))
        found = statics.at(state[ends][is_alone])
        found = _States(
            found.row, time[ends][is_alone], until[is_alone], found.last, found.inserted
        )
        return found.at(np.flatnonzero(self._any_value(found, is_static=True)))

    def _any_value(self, states: _States, *, is_static: bool) -> Mask:
        """Return whether one of a state's values of this kind is not null."""
        found = np.zeros(len(states.row), bool)
        for column in self._events.values:
            if (self._has_static_rows and column.kind is ColumnKind.STATIC) == is_static:
                given = valid(self._events.column(column.name))
                found |= at_rows(given, states.last[column.name])
        return found

    def _any_of_pairs(self, wanted: Mask) -> Mask:
        """Return for each row whether one of its pairs is wanted; for a static row, of any row."""
        found = np.zeros(self._count, bool)
        found[self._row[wanted]] = True
        of_partition = any_of_each(self._partition, found, self._partitions)
        return found | (self._is_static & of_partition[self._partition])

    def _shown(self, states: _States) -> pa.Table:
        """Return versions with their keys and values."""
        found = {}
        for name in self._events.cells.schema.names:
            shown = states.last[name] if name in states.last else self._first[states.row]
            found[name] = pick(self._events.column(name), shown)
        is_current = states.until == FOREVER
        found[names.INSERTED] = to_arrow(states.inserted)
        if (lifetimes := self._lifetimes()) is not None:
            shown = np.where(is_current, states.row, NONE)
            found[names.EXPIRES] = pick(lifetimes.column(), shown)
        found[VALID_FROM] = to_arrow(states.since).cast(TIMESTAMP)
        found[VALID_TO] = to_arrow(states.until, nulls=is_current).cast(TIMESTAMP)
        found[names.CHANGE_TYPE] = pa.array([REPLACE] * len(states.row), pa.string())
        return pa.table(found)

    def _lifetimes(self) -> Lifetimes | None:
        """Return when the values of the last state of each row expire."""
        if self._events.lifetimes is None:
            return None
        last = np.full(self._count, NONE)
        last_static = last.copy()
        last[self._row], last_static[self._row] = self._deleted, self._all_deleted
        places, is_of_static = np.arange(len(self._row)), self._is_static[self._of_row[self._event]]
        lives = self._is_write & self._is_own & (places > last[self._row])
        lives |= self._is_write & is_of_static & (places > last_static[self._row])
        lifetimes = self._events.lifetimes.at(self._event)
        found = lifetimes.of_each(self._row, lives, self._count)
        of_own = lifetimes.of_each(self._row, lives & self._is_own, self._count)
        return Lifetimes(found.first, found.last, of_own.whole & ~self._is_static)

    def _gone(self, found: list[_States], touched: Mask) -> pa.Table:
        """Return the current versions of before that have been replaced by none."""
        events = self._events
        is_before = events.is_old & touched[self._of_row]
        if self._has_static_rows:  # static values are a version only without other rows
            of_rows = events.is_old & ~self._is_static[self._of_row]
            has_rows = any_of_each(self._of_partition, of_rows, self._partitions)
            is_before &= ~(self._is_static[self._of_row] & has_rows[self._of_partition])
        before = np.flatnonzero(is_before)
        row = self._of_row[before]
        kept = np.zeros(len(row), bool)
        for states in found:
            began = np.full(self._count, FOREVER)
            np.minimum.at(began, states.row, states.since)
            kept |= began[row] == events.begun[before]
        gone = before[~kept]
        columns = {
            name: pick(events.column(name), gone)
            for name in events.cells.schema.names
            if name not in {column.name for column in events.values}
        }
        columns[VALID_FROM] = to_arrow(events.begun[gone]).cast(TIMESTAMP)
        columns[names.CHANGE_TYPE] = pa.array([DELETE] * len(gone), pa.string())
        return pa.table(columns)


def _spans(groups: Indices, times: Indices) -> tuple[Indices, Indices]:
    """Return the last place of each time in a group, and the next time of the group, or FOREVER.

    Groups are together, and their times in order.
    """
    is_end = np.ones(len(times), bool)
    is_end[:-1] = (groups[1:] != groups[:-1]) | (times[1:] != times[:-1])
    ends = np.flatnonzero(is_end)
    until, is_same = np.full(len(ends), FOREVER), groups[ends][1:] == groups[ends][:-1]
    until[:-1][is_same] = times[ends][1:][is_same]
    return ends, until
