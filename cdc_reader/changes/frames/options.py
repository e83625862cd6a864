"""Options that select and shape the format of a query."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen


class FormatName(StrEnum):
    """The shape of the rows."""

    LOG = "log"
    CHANGES = "changes"
    ENVELOPE = "envelope"


class RangeDelete(StrEnum):
    """What to do with a delete of a whole partition or of a range of rows."""

    FAIL = "fail"
    EMIT = "emit"
    SKIP = "skip"


class Preimages(StrEnum):
    """Whether to emit preimages.

    `auto`: when the log has complete preimages; `none`: never; `require`: fail if it has not.
    """

    AUTO = "auto"
    NONE = "none"
    REQUIRE = "require"


@frozen
class FormatOptions:
    """The options that shape the rows of a query."""

    format: FormatName = FormatName.LOG
    include_delta: bool = False
    range_deletes: RangeDelete = RangeDelete.FAIL
    preimages: Preimages = Preimages.AUTO
