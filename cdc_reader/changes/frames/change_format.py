"""`ChangeFormat`: what a row of changes is, and what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import field, frozen

from cdc_reader._settings import FLAG, Validator, require
from cdc_reader.changes.frames.columns import column_names
from cdc_reader.changes.frames.value_types import DEFAULT, ValueTypes
from cdc_reader.errors import ConfigurationError

FORMATS = ("log", "changes", "envelope")
RANGE_DELETES = ("fail", "emit", "skip")
PREIMAGES = ("auto", "none", "require")
ON_BAD_RECORD = ("fail", "skip", "quarantine")


def _one_of(values: Sequence[str]) -> Validator:
    return require(lambda value: value in values, f"give one of {', '.join(values)}")


def _name(_: object, __: object, value: str) -> None:
    if value not in FORMATS:
        raise ConfigurationError("format", value, f"give one of {', '.join(FORMATS)}")


def _decimal_type(_: object, __: object, value: str) -> None:
    ValueTypes.parse(value)


@frozen
class ChangeFormat:
    """What a row of changes is, and what it shows. The Spark source has the same options.

    The format ``log`` has the rows of the log and `_commit_timestamp`, the time of each write.
    ``changes`` has the changed rows of the base table, before and after each change. ``envelope``
    has changes in the format of the Debezium connector. ``docs/reference/spark-options.md``
    describes their columns.

    `columns` are columns of the base table to read in addition to its key; by default, all.
    `include_delta` adds columns to format ``changes`` that show which values each change wrote.
    `range_deletes` says what a delete of a whole partition or of a range of rows becomes: an error
    (``fail``), a row with its bounds (``emit``, only in format ``changes``), or nothing (``skip``).
    `preimages` says whether rows are shown as they were before a change: if the log has all their
    columns (``auto``), never (``none``), or always (``require``, with an error if the table's CDC
    options do not enable full preimages). Before ScyllaDB 2026.1, a delete in a table without
    clustering columns has no preimage, so only its key is shown. Numbers of the types decimal and
    varint become strings, or values of `decimal_type`: a type for all columns, as in
    ``decimal(20, 2)``, or types by column, as in ``price: decimal(18, 2), tax: decimal(9, 4)``.
    There, a name that contains a space or one of ``":,`` is quoted as in CQL.

    A row that cannot be converted, such as one with a number that does not fit `decimal_type`,
    raises an error. If `on_bad_record` is ``skip``, the row is left out and logged. With
    ``quarantine``, the row has nulls in place of the values that cannot be converted, and column
    `_bad_record` contains these values as text.

    Raises ConfigurationError for values that cannot be used, alone or together.
    """

    name: Literal["log", "changes", "envelope"] = field(default="changes", validator=_name)
    columns: tuple[str, ...] | None = field(default=None, converter=column_names)
    include_delta: bool = field(default=False, validator=FLAG)
    range_deletes: Literal["fail", "emit", "skip"] = field(
        default="fail", validator=_one_of(RANGE_DELETES)
    )
    preimages: Literal["auto", "none", "require"] = field(
        default="auto", validator=_one_of(PREIMAGES)
    )
    decimal_type: str = field(default=DEFAULT, validator=_decimal_type)
    on_bad_record: Literal["fail", "skip", "quarantine"] = field(
        default="fail", validator=_one_of(ON_BAD_RECORD)
    )

    def __attrs_post_init__(self) -> None:
        if self.include_delta and self.name != "changes":
            raise ConfigurationError("include_delta", True, _NO_DELTA[self.name])
        if self.name == "envelope" and self.range_deletes == "emit":
            remedy = (
                "an envelope cannot hold the bounds of a range: give 'fail' or 'skip', or "
                "format 'changes'"
            )
            raise ConfigurationError("range_deletes", self.range_deletes, remedy)


_NO_DELTA = {
    "log": "log rows already show what they changed: leave it out, or give format 'changes'",
    "envelope": "an envelope shows whole rows: leave it out, or give format 'changes'",
}


def change_format(given: ChangeFormat | str) -> ChangeFormat:
    """Return the given format, or the format of this name with all defaults."""
    return given if isinstance(given, ChangeFormat) else ChangeFormat(given)  # type: ignore[arg-type]
