"""The names of the columns of a copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from cdc_reader.copies.own_names import OwnNames


def quoted(name: str) -> str:
    """Quote an identifier for Spark, and for deltalake."""
    return "`" + name.replace("`", "``") + "`"


@frozen
class CopyColumns:
    """The names of a copy's columns: those of the table, in order, and the copy's own.

    The column `marker` is true for rows that an INSERT created, or that were in a snapshot: they
    remain when they lose their last value. The column `bucket`, if there is one, partitions the
    copy.
    """

    table: Sequence[str]
    partition: Sequence[str]
    clustering: Sequence[str]
    statics: Sequence[str]
    marker: str
    bucket: str | None = None

    @property
    def key(self) -> list[str]:
        """The columns of the primary key."""
        return [*self.partition, *self.clustering]

    @property
    def values(self) -> list[str]:
        """The columns of a row outside the key, without the marker."""
        return [name for name in self.table if name not in self.key]

    @property
    def row(self) -> list[str]:
        """The columns of a row: all columns of the copy except the bucket."""
        return [*self.table, self.marker]

    @property
    def stored(self) -> list[str]:
        """All columns of the copy."""
        return self.row if self.bucket is None else [*self.row, self.bucket]

    @property
    def kind(self) -> str:
        """The column of updates with what to do: ``upsert``, ``replace`` or ``delete``."""
        return self._own.own("kind")

    @property
    def flags(self) -> dict[str, str]:
        """For each column of `values`, the column of updates that is true if the update sets it."""
        return {name: self._own.own(f"set_{at}") for at, name in enumerate(self.values)}

    @property
    def _own(self) -> OwnNames:
        return OwnNames.beside(self.stored)


def marker_beside(columns: Iterable[str]) -> str:
    """Return a name for the marker that none of the `columns` has."""
    return OwnNames.beside(columns).own("inserted")
