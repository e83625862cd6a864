"""Names for columns that exist only within a computation, beside the columns of any table."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen


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
