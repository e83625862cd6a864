"""Options that select the format of a query's rows, and what the rows show."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from attrs import field, frozen

from cdc_reader._settings import FLAG, expect, member
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


class IncludedImage(StrEnum):
    """What an advanced envelope shows of the row before or after a change.

    With ``only-updated``, an update shows only the columns that it changed; other columns are null.
    """

    NONE = "none"
    FULL = "full"
    ONLY_UPDATED = "only-updated"


class KeyPlacement(StrEnum):
    """The parts of an advanced envelope that can contain the columns of the primary key."""

    PAYLOAD_BEFORE = "payload-before"
    PAYLOAD_AFTER = "payload-after"
    PAYLOAD_KEY = "payload-key"


def _before(value: str) -> IncludedImage:
    return member("before", value, IncludedImage)


def _after(value: str) -> IncludedImage:
    return member("after", value, IncludedImage)


def _placement(places: str | Iterable[str]) -> tuple[KeyPlacement, ...]:
    given = [places] if isinstance(places, str) else places
    return tuple(member("key_placement", place, KeyPlacement) for place in given)


@frozen
class AdvancedEnvelope:
    """The connector's advanced output (``cdc.output.format=advanced``) for format `envelope`.

    `before` and `after` are ``none``, ``full`` or ``only-updated``, like ``cdc.include.before`` and
    ``cdc.include.after``. `key_placement` lists the places that contain the primary key, like
    ``cdc.include.primary-key.placement``: ``payload-before`` and ``payload-after`` are the rows
    before and after the change, and ``payload-key`` is the column `key`. By default, the key is in
    all three places, so that each message identifies its row. The connector's own default uses the
    key of the Kafka message instead of ``payload-key``.

    Raises ConfigurationError for other values.
    """

    before: IncludedImage = field(default=IncludedImage.NONE, converter=_before)
    after: IncludedImage = field(default=IncludedImage.NONE, converter=_after)
    key_placement: tuple[KeyPlacement, ...] = field(
        default=tuple(KeyPlacement), converter=_placement
    )


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
    envelope: AdvancedEnvelope | None = None

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
        envelope: AdvancedEnvelope | None = None,
    ) -> FormatOptions:
        """Parse options given as strings; raise ConfigurationError for an unknown value."""
        return cls(
            format=member("format", format, FormatName),
            include_delta=include_delta,
            range_deletes=member("range_deletes", range_deletes, RangeDelete),
            preimages=member("preimages", preimages, Preimages),
            on_bad_record=member("on_bad_record", on_bad_record, BadRecord),
            types=ValueTypes.parse(decimal_type, "decimal_type"),
            envelope=None if envelope is None else expect("envelope", envelope, AdvancedEnvelope),
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
        if self.envelope is not None:
            self._check_envelope()

    def _check_envelope(self) -> None:
        if self.format is not FormatName.ENVELOPE:
            remedy = "an advanced envelope needs format 'envelope': give that, or leave it out"
            raise ConfigurationError("envelope", "advanced", remedy)
        if self.preimages is not Preimages.AUTO:
            remedy = "an advanced envelope has its own setting, 'before': leave it out"
            raise ConfigurationError("preimages", self.preimages.value, remedy)


_NO_DELTA = {
    FormatName.LOG: "log rows already show what they changed: leave it out, or give format "
    "'changes'",
    FormatName.ENVELOPE: "an envelope already tells unknown values from null: leave it out",
}
