"""Options that select the format of a query's rows, and what the rows show."""

from __future__ import annotations

from enum import StrEnum

from attrs import field, frozen

from cdc_reader._settings import FLAG, member
from cdc_reader.changes.frames.value_types import ValueTypes
from cdc_reader.errors import ConfigurationError


class FormatName(StrEnum):
    """The formats in which a query can return rows."""

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

    `auto`: if the log has complete preimages; `none`: never; `require`: always, and fail if the log
    lacks complete preimages.
    """

    AUTO = "auto"
    NONE = "none"
    REQUIRE = "require"


class BadRecord(StrEnum):
    """What to do with a row that cannot be converted.

    `fail`: raise an error; `skip`: leave it out, count it and log it; `quarantine`: emit it with
    nulls in place of the values that cannot be converted, and put these values in column
    `_bad_record`.
    """

    FAIL = "fail"
    SKIP = "skip"
    QUARANTINE = "quarantine"


@frozen
class FormatOptions:
    """The format of a query's rows, and what the rows show.

    Raises ConfigurationError for values that cannot be used together.
    """

    format: FormatName = FormatName.LOG
    include_delta: bool = field(default=False, validator=FLAG)
    range_deletes: RangeDelete = RangeDelete.FAIL
    preimages: Preimages = Preimages.AUTO
    on_bad_record: BadRecord = BadRecord.FAIL
    types: ValueTypes = ValueTypes()

    @classmethod
    def of(
        cls,
        *,
        format: str,  # noqa: A002 - Spark's name
        include_delta: bool,
        range_deletes: str,
        preimages: str,
        decimal_type: str,
        on_bad_record: str,
    ) -> FormatOptions:
        """Parse options given as strings; raise ConfigurationError for an unknown value."""
        return cls(
            format=member("format", format, FormatName),
            include_delta=include_delta,
            range_deletes=member("range_deletes", range_deletes, RangeDelete),
            preimages=member("preimages", preimages, Preimages),
            on_bad_record=member("on_bad_record", on_bad_record, BadRecord),
            types=ValueTypes.parse(decimal_type, "decimal_type"),
        )

    @property
    def is_tolerant(self) -> bool:
        """Whether reading continues if a row cannot be converted."""
        return self.on_bad_record is not BadRecord.FAIL

    def __attrs_post_init__(self) -> None:
        if self.include_delta and self.format is not FormatName.CHANGES:
            raise ConfigurationError("include_delta", True, _NO_DELTA[self.format])
        if self.format is FormatName.ENVELOPE and self.range_deletes is RangeDelete.EMIT:
            remedy = (
                "an envelope cannot hold the bounds of a range: give 'fail' or 'skip', or "
                "format 'changes'"
            )
            raise ConfigurationError("range_deletes", self.range_deletes.value, remedy)


_NO_DELTA = {
    FormatName.LOG: "log rows already show what they changed: leave it out, or give format "
    "'changes'",
    FormatName.ENVELOPE: "an envelope shows whole rows: leave it out, or give format 'changes'",
}
