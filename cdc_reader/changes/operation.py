"""`ChangeOperation`: what a change does, according to the operations of its log rows."""

from __future__ import annotations

from enum import StrEnum

from cdc_reader.changes.records import IMAGES, RANGE_BOUNDS
from cdc_reader.cql.schema import Operation


class ChangeOperation(StrEnum):
    """The operation of a change.

    A code that this version does not support becomes a new member, ``unknown_<code>``.
    """

    INSERT = "insert"
    UPDATE = "update"
    ROW_DELETE = "row_delete"
    RANGE_DELETE = "range_delete"
    PARTITION_DELETE = "partition_delete"
    SERVER_ROW_DELETE = "server_row_delete"
    SERVER_PARTITION_DELETE = "server_partition_delete"
    IMAGE = "image"
    SNAPSHOT = "snapshot"

    @property
    def is_known(self) -> bool:
        """Whether this version of the package supports the operation."""
        return not self.startswith("unknown_")

    @property
    def is_delete(self) -> bool:
        """Whether the change deletes a row, a range of rows or a partition."""
        return self.endswith("_delete")

    @classmethod
    def _missing_(cls, value: object) -> ChangeOperation | None:
        if not isinstance(value, str) or not value.startswith("unknown_"):
            return None
        member = str.__new__(cls, value)
        member._name_ = value.upper()
        member._value_ = value
        return cls._value2member_map_.setdefault(value, member)  # type: ignore[return-value]


class _Meanings(dict[Operation, ChangeOperation]):
    def __missing__(self, operation: Operation) -> ChangeOperation:
        meaning = self[operation] = ChangeOperation(operation.name.lower())
        return meaning


MEANINGS = _Meanings(dict.fromkeys(RANGE_BOUNDS, ChangeOperation.RANGE_DELETE))
MEANINGS.update(dict.fromkeys(IMAGES, ChangeOperation.IMAGE))
"""The operation of a change, by the operation of its main log row."""
