"""The names of the columns of a copy, and names beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen


def quoted(name: str) -> str:
    """Quote an identifier for Spark, and for deltalake."""
    return "`" + name.replace("`", "``") + "`"


@frozen
class OwnNames:
    """Names that no column of a table has, in upper or lower case.

    They begin with more underscores than any of the table's columns.
    """

    prefix: str

    @classmethod
    def beside(cls, columns: Iterable[str]) -> OwnNames:
        """Return names that differ from those of the `columns`."""
        return cls("_" * (1 + max((len(it) - len(it.lstrip("_")) for it in columns), default=0)))

    def own(self, name: str) -> str:
        """Return the name of a column of the computation itself."""
        return f"{self.prefix}{name}"

    def other(self, column: str) -> str:
        """Return a second name for a table's column, for joins of rows with rows."""
        return f"{self.prefix}other {column}"


@frozen
class CopyColumns:
    """The names of a copy's columns: those of the table, in order, and the copy's own.

    For the column `state`, see `cdc_reader.copies.row_state`. The column `bucket`, if there is one,
    partitions the copy.
    """

    table: Sequence[str]
    partition: Sequence[str]
    clustering: Sequence[str]
    statics: Sequence[str]
    state: str
    bucket: str | None = None

    @property
    def key(self) -> list[str]:
        """The columns of the primary key."""
        return [*self.partition, *self.clustering]

    @property
    def values(self) -> list[str]:
        """The columns of a row outside the key, without the state."""
        return [name for name in self.table if name not in self.key]

    @property
    def row(self) -> list[str]:
        """The columns of a row: all columns of the copy except the bucket."""
        return [*self.table, self.state]

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


def state_beside(columns: Iterable[str]) -> str:
    """Return a name for the state of rows that none of the `columns` has."""
    return OwnNames.beside(columns).own("state")
