"""Detects data loss: rows that may have expired before the query read them."""

from __future__ import annotations

from collections.abc import Collection

from cdc_reader._time import BEGINNING, FOREVER, Micros
from cdc_reader.cql.schema import TableSchema
from cdc_reader.reading import loss
from cdc_reader.reading.expiry import TtlHistory, first_written, since_created
from cdc_reader.reading.loss import warn_of_loss
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.planning.promise import Promise


def report_loss(
    options: SourceOptions,
    unread: Collection[Window],
    ttls: TtlHistory,
    now: Micros,
    remedy: str,
) -> Promise:
    """Raise DataLossError or warn, depending on `onDataLoss`, if rows of the windows are lost.

    The last window begins where the query, or an earlier one, stopped reading. The others are those
    of generations that were announced late. Returns a promise: the rows that the tasks must find.
    """
    since = min(window.start for window in unread)
    for window in unread:
        lost = ttls.lost(window.start, now, window.end)
        if lost.is_empty:
            continue
        kept = f"their TTL was {ttls.at(lost.start)} s, and " if lost.start >= ttls.log_lost else ""
        loss.report_loss(
            lost,
            options.table,
            ttls,
            options.data_loss,
            f"{kept}onDataLoss is {options.data_loss.value!r}: give 'continue' to do without "
            f"them, or {remedy}",
        )
        since = lost.end
    return Promise(ttls, since, options.data_loss)


def promise_from(options: SourceOptions, window: Window, ttls: TtlHistory, now: Micros) -> Promise:
    """Return the rows that the tasks must find in a window that does not start at an offset.

    If the start is older than the log's rows, these are the rows that the log still holds, except
    for rows that expire soon.
    """
    created, since = ttls.created, window.start
    if since <= ttls.kept_since(now):
        since = ttls.unpromised(since, now).end
    if created is not None and created <= now:
        since = max(since, first_written(created))
    return Promise(ttls, since, options.data_loss)


def report_expired_start(options: SourceOptions, base: TableSchema, now: Micros) -> None:
    """Warn if rows written since `startingTimestamp` may have expired.

    Unlike an offset, a timestamp does not imply that an earlier query stopped there, so the query
    reads the rows that the log still holds. A log younger than its TTL has lost no rows.
    """
    if options.starting in (BEGINNING, FOREVER) or options.starting_offset is not None:
        return
    window = options.window(now)
    ttls = options.ttls(base, now)
    lost = since_created(ttls.lost(window.start, now), ttls.created, now)
    warn_of_loss(lost.intersect(window), options.table)
