"""What a query asks of the format, as values of options."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen


class FormatName(StrEnum):
    """What rows come out."""

    LOG = "log"
    CHANGES = "changes"
    ENVELOPE = "envelope"


class RangeDelete(StrEnum):
    """What a delete of a whole partition or of a range of rows is to do."""

    FAIL = "fail"
    EMIT = "emit"
    SKIP = "skip"


class Preimages(StrEnum):
    """Whether rows as they were before are wanted: if they are whole, never, or in any case."""

    AUTO = "auto"
    NONE = "none"
    REQUIRE = "require"


@frozen
class Asked:
    """The choices that shape the rows of a query."""

    format: FormatName = FormatName.LOG
    include_delta: bool = False
    range_deletes: RangeDelete = RangeDelete.FAIL
    preimages: Preimages = Preimages.AUTO
