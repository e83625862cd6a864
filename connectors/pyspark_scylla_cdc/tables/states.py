"""The column `state` of a copy in Spark; see `cdc_reader.copies.row_state`."""

from __future__ import annotations

from pyspark.sql import Column, WindowSpec
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, LongType, StructField, StructType, TimestampType

from cdc_reader.copies.row_state import FIRST, INSERTED, LAST, WHOLE

STATE = StructType(
    [
        StructField(INSERTED, BooleanType()),
        StructField(FIRST, LongType()),
        StructField(LAST, LongType()),
        StructField(WHOLE, BooleanType()),
    ]
)
EXPIRES = StructType(
    [
        StructField(FIRST, TimestampType()),
        StructField(LAST, TimestampType()),
        StructField(WHOLE, BooleanType()),
    ]
)
"""The type of the column `_expires` of changes."""


def inserted_of(state: Column) -> Column:
    """Return whether the row counts as inserted."""
    return sf.coalesce(state[INSERTED], sf.lit(True))


def expires_of(state: Column) -> Column:
    """Return the state as changes have it in the column `_expires`."""
    times = (sf.timestamp_micros(state[name]).alias(name) for name in (FIRST, LAST))
    return sf.when(state.isNotNull(), sf.struct(*times, state[WHOLE].alias(WHOLE)))


def state_of(inserted: Column, expires: Column) -> Column:
    """Return the state of rows with these values of `_inserted` and `_expires`."""
    times = (sf.unix_micros(expires[name]).alias(name) for name in (FIRST, LAST))
    told = sf.struct(inserted.alias(INSERTED), *times, expires[WHOLE].alias(WHOLE))
    has_expiry = expires[FIRST].isNotNull() | sf.coalesce(expires[WHOLE], sf.lit(False))
    return sf.when(~inserted | has_expiry, told)


def least_of(
    expires: Column, wanted: Column | None = None, window: WindowSpec | None = None
) -> Column:
    """Return an aggregate: when the values of several changes expire, or of the `wanted` ones."""
    is_whole = sf.coalesce(expires[WHOLE], sf.lit(False))
    if wanted is not None:
        is_whole = sf.when(wanted, is_whole)
    found = sf.min(expires[FIRST]), sf.max(expires[LAST]), sf.bool_and(is_whole)
    return _expires(*(found if window is None else (each.over(window) for each in found)))


def joined(expires: Column, of_statics: Column) -> Column:
    """Return when the values of a row expire that also has static columns, which never end it."""
    first = sf.least(expires[FIRST], of_statics[FIRST])
    last = sf.greatest(expires[LAST], of_statics[LAST])
    return _expires(first, last, sf.lit(False))


def _expires(first: Column, last: Column, whole: Column) -> Column:
    return sf.struct(first.alias(FIRST), last.alias(LAST), whole.alias(WHOLE))
