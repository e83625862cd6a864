"""Tells that rows which a query was to read may have expired."""

from __future__ import annotations

from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, FOREVER, Micros, format_timestamp
from cdc_reader.cql.schema import TableSchema
from cdc_reader.errors import DataLossError
from cdc_reader.reading.ttl_history import TtlHistory, since_created
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import created_at

log = get_logger(__name__)


def report_loss(
    options: SourceOptions, window: Window, ttls: TtlHistory, now: Micros, remedy: str
) -> None:
    """Raise DataLossError, or warn, by `failOnDataLoss`, if rows of the window may have expired.

    The window begins where the query, or an earlier one, stopped reading.
    """
    lost = ttls.lost(window.start, now).intersect(window)
    if lost.is_empty:
        return
    if options.fail_on_data_loss:
        raise DataLossError(
            f"failOnDataLoss is 'true': changes of {options.table} written in {lost} were not "
            f"read before they expired (their TTL is {ttls.at(lost.start)} s): give 'false' to "
            f"continue without them, or {remedy}"
        )
    _warn(options, lost)


def report_expired_start(options: SourceOptions, base: TableSchema, now: Micros) -> None:
    """Warn if rows written since `startingTimestamp` may have expired.

    A moment, unlike an offset, does not say that a reader stopped there: it asks for what the log
    still holds. A log younger than its TTL has lost nothing.
    """
    if options.starting in (BEGINNING, FOREVER) or options.starting_offset is not None:
        return
    window = options.window(now)
    lost = options.ttls(base, now).lost(window.start, now).intersect(window)
    if not lost.is_empty:
        created = created_at(options.connection(), options.read, options.table)
        lost = since_created(lost, created, now)
    if not lost.is_empty:
        _warn(options, lost)


def _warn(options: SourceOptions, lost: Window) -> None:
    start, end = format_timestamp(lost.start), format_timestamp(lost.end)
    log.warning("rows_lost", table=str(options.table), start=start, end=end)
