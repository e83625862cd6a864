"""The values of the option ``lateRows``."""

from __future__ import annotations

from enum import StrEnum

from cdc_reader.config import LateRowsMode


class LateRowsChoice(StrEnum):
    """What a stream does with late rows.

    With ``reread``, it delivers their partitions as they are now: a delete of the partition, and
    then its rows.
    """

    IGNORE = "ignore"
    REPORT = "report"
    DELIVER = "deliver"
    REREAD = "reread"

    @property
    def mode(self) -> LateRowsMode:
        """How the driver treats late rows."""
        return LateRowsMode.DELIVER if self is LateRowsChoice.REREAD else LateRowsMode(self.value)
