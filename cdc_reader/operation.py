"""`cdc$operation`: what one row of the log says happened."""

from __future__ import annotations

from enum import IntEnum


class Operation(IntEnum):
    """The operation of a log row.

    A code that this version does not know becomes a member of its own, named
    ``UNKNOWN_<code>``: rows of newer servers are carried, never dropped.
    """

    SERVER_PARTITION_DELETE = -4
    SERVER_ROW_DELETE = -3
    PREIMAGE = 0
    UPDATE = 1
    INSERT = 2
    ROW_DELETE = 3
    PARTITION_DELETE = 4
    RANGE_START_INCLUSIVE = 5
    RANGE_START_EXCLUSIVE = 6
    RANGE_END_INCLUSIVE = 7
    RANGE_END_EXCLUSIVE = 8
    POSTIMAGE = 9

    @property
    def is_known(self) -> bool:
        """Whether this version knows what the operation means."""
        return not self.name.startswith("UNKNOWN_")

    @property
    def is_image(self) -> bool:
        """Whether the row shows a state (before or after), not a change."""
        return self in (Operation.PREIMAGE, Operation.POSTIMAGE)

    @classmethod
    def _missing_(cls, value: object) -> Operation | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = f"UNKNOWN_{value}"
        member._value_ = value
        return cls._value2member_map_.setdefault(value, member)  # type: ignore[return-value]
