"""The events that a fold puts in order: changes, and the rows that a copy has before them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from cdc_reader._arrow import Mask, booleans, cells, filled, to_arrow, to_numpy, valid
from cdc_reader._time import BEGINNING
from cdc_reader.changes.arrays import NONE, Indices, codes, combined, comparable
from cdc_reader.changes.folding.keys import flat
from cdc_reader.changes.frames import columns as names
from cdc_reader.changes.lifetimes import Lifetimes
from cdc_reader.cql.schema import Column, ColumnKind, TableSchema
from cdc_reader.errors import SchemaError

Rows: TypeAlias = pa.RecordBatch | pa.Table

WRITE, OF_ROW, OF_PARTITION, OF_RANGE, BEGIN = range(5)
_KINDS = {
    "insert": WRITE,
    "update_postimage": WRITE,
    "delete": OF_ROW,
    "delete_partition": OF_PARTITION,
    "delete_range": OF_RANGE,
    names.SNAPSHOT_BEGIN: BEGIN,
}
"""The kind of event that a change of each type is: a write, one of three deletes, or a snapshot."""
VALID_FROM = "valid_from"
"""The column of a copy with history that says when a version of a row began."""
NEEDED_COLUMNS = (
    names.CHANGE_TYPE,
    names.COMMIT_TIMESTAMP,
    names.COMMIT_VERSION,
    names.SEQUENCE,
    names.MODIFIED,
    names.INSERTED,
)
"""Columns of changes without which they cannot be folded."""


@frozen(eq=False)
class Events:
    """Writes and deletes, in the order in which they take effect."""

    cells: pa.Table
    """The cells of the table's columns."""
    bounds: pa.Array | None
    """What the changes have in the column `_range`."""
    kind: Indices
    sets: Mask
    """For each event and each column of `values`, whether the event wrote it."""
    inserts: Mask
    is_old: Mask
    """Whether the event is a row of the copy."""
    times: Indices
    """Write times in µs; that of a row of the copy is before all others."""
    lifetimes: Lifetimes | None
    """When what the events wrote expires, if the changes tell."""
    begun: Indices
    """When the current version of a row of the copy began, in µs; BEGINNING for other events."""
    values: Sequence[Column]

    def since(self, place: int) -> Events:
        """Return the events from a place on."""
        return Events(
            cells=self.cells.slice(place),
            bounds=None if self.bounds is None else self.bounds.slice(place),
            kind=self.kind[place:],
            sets=self.sets[place:],
            inserts=self.inserts[place:],
            is_old=self.is_old[place:],
            times=self.times[place:],
            lifetimes=None if self.lifetimes is None else self.lifetimes.since(place),
            begun=self.begun[place:],
            values=self.values,
        )

    def then(self, later: Events) -> Events:
        """Return these events and then the later ones."""
        both = self.bounds is not None and later.bounds is not None
        ours, theirs = self.lifetimes, later.lifetimes
        return Events(
            cells=pa.concat_tables([self.cells, later.cells]),
            bounds=pa.concat_arrays([self.bounds, later.bounds]) if both else None,
            kind=np.concatenate([self.kind, later.kind]),
            sets=np.concatenate([self.sets, later.sets]),
            inserts=np.concatenate([self.inserts, later.inserts]),
            is_old=np.concatenate([self.is_old, later.is_old]),
            times=np.concatenate([self.times, later.times]),
            lifetimes=None if ours is None or theirs is None else ours.then(theirs),
            begun=np.concatenate([self.begun, later.begun]),
            values=self.values,
        )

    def column(self, name: str) -> pa.Array:
        """Return the events' cells of a column."""
        return flat(self.cells.column(name))

    def columns(self, key: Sequence[Column]) -> list[pa.Array]:
        """Return the events' cells of several columns."""
        return [self.column(column.name) for column in key]


def events_of(table: TableSchema, changes: Rows, rows: Rows | None) -> Events:
    """Return the events of `changes`, after those of the copy's rows; see `fold`."""
    found = _changes(table, usable(table, changes))
    begins = np.flatnonzero(found.kind == BEGIN)
    if len(begins):
        return found.since(int(begins[-1]) + 1)
    if rows is None or not rows.num_rows:
        return found
    return _old_rows(table, rows, found).then(found)


def _changes(table: TableSchema, changes: pa.Table) -> Events:
    kind = kinds_of(changes)
    order = _order(changes, kind)
    changes, kind = changes.take(order), kind[to_numpy(order)]
    known = [it for it in table.columns if it.name in changes.schema.names]
    values = [it for it in known if not it.is_key]
    has_bounds = names.RANGE in changes.schema.names
    return Events(
        cells=changes.select([it.name for it in known]),
        bounds=flat(changes.column(names.RANGE)) if has_bounds else None,
        kind=kind,
        sets=_written(flat(changes.column(names.MODIFIED)), values),
        inserts=booleans(flat(changes.column(names.INSERTED))) & (kind == WRITE),
        is_old=np.zeros(len(kind), bool),
        times=cells(flat(changes.column(names.COMMIT_TIMESTAMP)).cast(pa.int64())),
        lifetimes=_lifetimes(changes),
        begun=np.full(len(kind), BEGINNING),
        values=values,
    )


def _old_rows(table: TableSchema, rows: Rows, changes: Events) -> Events:
    """Return the copy's rows as writes of the columns that the `changes` have.

    In a table with static rows, one row of each partition also writes its static columns.
    """
    rows = plain(rows)
    _check_copy(table, rows)
    inserts = ~_false(rows.column(names.INSERTED))
    lifetimes, begun = _lifetimes(rows) or Lifetimes.endless(len(rows)), _begun(rows)
    rows = _fitted(rows, changes.cells.schema)
    is_static = np.array([it.kind is ColumnKind.STATIC for it in changes.values], bool)
    if not table.clustering:
        return _writes(rows, np.ones(len(is_static), bool), inserts, lifetimes, begun, changes)
    has_key = valid(flat(rows.column(table.clustering[0].name)))

    def of_rows(sets: Mask) -> Events:
        keyed = rows.filter(to_arrow(has_key))
        its = lifetimes.at(np.flatnonzero(has_key))
        return _writes(keyed, sets, inserts[has_key], its, begun[has_key], changes)

    if not has_static_rows(table, rows):
        # A row without a clustering key had static columns, which the table has dropped since.
        regular = of_rows(~is_static)
        alone = rows.filter(to_arrow(~has_key))
        nothing, endless = np.zeros(len(alone), bool), Lifetimes.endless(len(alone))
        nowhere = np.zeros(len(is_static), bool)
        return _writes(alone, nowhere, nothing, endless, begun[~has_key], changes).then(regular)
    partition = groups_of((flat(rows.column(it.name)) for it in table.partition_key), len(rows))
    first = np.unique(partition, return_index=True)[1]
    statics = rows.take(to_arrow(first))
    for column in table.clustering:
        place = statics.schema.get_field_index(column.name)
        nulls = pa.nulls(len(statics), statics.schema.types[place])
        statics = statics.set_column(place, column.name, nulls)
    nothing, of_partitions = (
        np.zeros(len(statics), bool),
        lifetimes.of_each(partition, np.ones(len(rows), bool), len(statics)),
    )
    last = np.full(len(statics), BEGINNING)
    np.maximum.at(last, partition, begun)
    alone = _writes(statics, is_static, nothing, of_partitions, last, changes)
    return alone.then(of_rows(~is_static))


def _check_copy(table: TableSchema, rows: pa.Table) -> None:
    """Raise SchemaError for rows of a copy that lack a column of the key, or `_inserted`."""
    needed = [column.name for column in table.columns if column.is_key]
    if lacking := [name for name in (*needed, names.INSERTED) if name not in rows.schema.names]:
        raise SchemaError(
            f"{table.name}: the rows of the copy lack the column {lacking[0]}: if a key column was "
            "renamed, start over with a new copy"
        )


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns and the types of the schema; what they lack is null."""
    known = {*rows.schema.names}
    columns = [
        rows.column(field.name) if field.name in known else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)


def _writes(
    rows: pa.Table,
    sets: Mask,
    inserts: Mask,
    lifetimes: Lifetimes,
    begun: Indices,
    changes: Events,
) -> Events:
    """Return rows of the copy as writes of the columns that the mask `sets` selects."""
    count = len(rows)
    return Events(
        cells=rows,
        bounds=None if changes.bounds is None else pa.nulls(count, changes.bounds.type),
        kind=np.full(count, WRITE),
        sets=np.tile(sets, (count, 1)),
        inserts=inserts,
        is_old=np.ones(count, bool),
        times=np.full(count, BEGINNING),
        lifetimes=None if changes.lifetimes is None else lifetimes,
        begun=begun,
        values=changes.values,
    )


def usable(table: TableSchema, changes: Rows) -> pa.Table:
    """Return the changes that have an effect, without those that could not be converted."""
    changes = plain(changes)
    _check_changes(table, changes)
    if names.BAD_RECORD in changes.schema.names:
        bad = flat(changes.column(names.BAD_RECORD))
        key = {column.name for column in table.columns if column.is_key}
        faults = [each is not None and {*each["columns"]} for each in bad.to_pylist()]
        kinds = changes.column(names.CHANGE_TYPE).to_pylist()
        kept = [
            found is False or (kind.startswith("delete") and key.isdisjoint(found))
            for found, kind in zip(faults, kinds, strict=True)
        ]
        changes = changes.filter(pa.array(kept, pa.bool_()))
    return changes.filter(to_arrow(kinds_of(changes) != NONE))


def _check_changes(table: TableSchema, changes: pa.Table) -> None:
    """Raise SchemaError for changes without a column that the fold needs."""
    needed = [column.name for column in table.columns if column.is_key]
    known = {*changes.schema.names}
    if names.CHANGE_TYPE in known and OF_RANGE in kinds_of(changes):
        needed.append(names.RANGE)
    for name in (*needed, *NEEDED_COLUMNS):
        if name not in known:
            raise SchemaError(
                f"{table.name}: the changes lack the column {name}: expected format 'changes', "
                "read with include_delta"
            )


def plain(rows: Rows) -> pa.Table:
    """Return the rows with one chunk in each column, without dictionaries and views."""
    found = {}
    for field, column in zip(rows.schema, pa.table(rows).columns, strict=True):
        kind = field.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_string_view(kind):
            kind = pa.string()
        if pa.types.is_binary_view(kind):
            kind = pa.binary()
        parts = [part.cast(kind) for part in column.chunks if len(part)]
        whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts or [pa.nulls(0, kind)])
        found[field.name] = whole
    return pa.table(found)


def has_static_rows(table: TableSchema, rows: pa.Table) -> bool:
    """Return whether the rows have static columns, beside a clustering key."""
    statics = {column.name for column in table.of_kind(ColumnKind.STATIC)}
    return bool(table.clustering) and not statics.isdisjoint(rows.schema.names)


def kinds_of(changes: pa.Table) -> Indices:
    """Return the kind of each change; NONE for those without an effect."""
    kinds = flat(changes.column(names.CHANGE_TYPE)).dictionary_encode()
    known = [_KINDS.get(name, NONE) for name in kinds.dictionary.to_pylist()]
    return np.array([*known, NONE], np.int64)[filled(kinds.indices, NONE)]


def _order(changes: pa.Table, kind: Indices) -> pa.Array:
    """Return the places of the changes in order; in one microsecond, deletes are last."""
    is_delete = np.isin(kind, (OF_ROW, OF_PARTITION, OF_RANGE))
    keys = [changes.column(name) for name in (names.COMMIT_VERSION, names.SEQUENCE)]
    columns = [changes.column(names.COMMIT_TIMESTAMP), to_arrow(is_delete), *keys]
    order = [(str(number), "ascending") for number in range(len(columns))]
    return pc.sort_indices(pa.table(columns, names=[name for name, _ in order]), order)


def _written(lists: pa.ListArray, values: Sequence[Column]) -> Mask:
    """Return for each list of names, and each column, whether the list has the column's name."""
    found = np.zeros((len(lists), len(values) + 1), bool)
    places = {column.name: number for number, column in enumerate(values)}
    given = lists.flatten().dictionary_encode()
    known = [places.get(name, len(values)) for name in given.dictionary.to_pylist()]
    rows = cells(lists.value_parent_indices())
    found[rows, np.array(known, np.int64)[cells(given.indices)]] = True
    return found[:, :-1]


def groups_of(keys: Iterable[pa.Array], count: int, groups: Indices | None = None) -> Indices:
    """Return a number for each row, the same for equal keys, without gaps; null equals null."""
    found = np.zeros(count, np.int64) if groups is None else groups
    for each in keys:
        found = combined(found, codes(comparable(each)))
    return found


def _begun(rows: pa.Table) -> Indices:
    """Return when versions of rows began, in µs, or BEGINNING for rows without versions."""
    if VALID_FROM not in rows.schema.names:
        return np.full(len(rows), BEGINNING)
    return filled(flat(rows.column(VALID_FROM)).cast(pa.int64()), BEGINNING)


def _lifetimes(rows: pa.Table) -> Lifetimes | None:
    """Return what the rows have in the column `_expires`, or None without it."""
    if names.EXPIRES not in rows.schema.names:
        return None
    return Lifetimes.of_column(flat(rows.column(names.EXPIRES)))


def distinct(keys: pa.Table) -> pa.Table:
    """Return each key once."""
    groups = groups_of(map(flat, keys.columns), keys.num_rows)
    return keys.take(to_arrow(np.unique(groups, return_index=True)[1]))


def groups_of_both(keys: pa.Table, others: pa.Table) -> tuple[Indices, Indices]:
    """Return the numbers of two tables' keys, see `groups_of`; `others` may have other types."""
    both = pa.concat_tables([keys, others.cast(keys.schema)])
    groups = groups_of(map(flat, both.columns), len(both))
    return groups[: len(keys)], groups[len(keys) :]


def _false(column: pa.ChunkedArray) -> Mask:
    """Return which cells are false, and not null."""
    cells = flat(column)
    return valid(cells) & ~booleans(cells)
