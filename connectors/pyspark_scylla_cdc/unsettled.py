"""Tells of rows that have not settled: a stream does not read them yet, and a batch reads them."""

from __future__ import annotations

import math

from cdc_reader._log import get_logger
from cdc_reader._time import Micros, format_timestamp
from cdc_reader.cql.schema import LogSchema
from cdc_reader.reading.advance import settled_before, written_before
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.row_count import row_count

log = get_logger(__name__)

_STREAMS, _ROWS = 4_096, 1_000
"""The most streams of a generation in which rows are looked for, and the most that are counted."""
_READ_LATER = (
    "a stream reads rows when they have settled: run the query again then, or read them now with "
    "spark.read; a shorter confidenceWindow settles them earlier"
)
_MAY_CHANGE = (
    "rows with earlier write times may still arrive among them: read again then, or set "
    "endingTimestamp; a stream reads rows only when they have settled"
)


def tell_unread(
    options: SourceOptions, schema: LogSchema, timeline: Timeline, settled: Window, now: Micros
) -> None:
    """Log a warning if a stream finds no rows in `settled`, but rows that have not settled."""
    found = _count(options, schema, timeline, Window(settled.end, _end(options, now)), _ROWS)
    if found and not _count(options, schema, timeline, settled, 0):
        _tell("rows_not_settled", options, found, now, _READ_LATER)


def tell_read(
    options: SourceOptions, schema: LogSchema, timeline: Timeline, wanted: Window, now: Micros
) -> None:
    """Log a warning if the window that a batch reads contains rows that have not settled."""
    start = max(wanted.start, settled_before(now, options.confidence))
    end = min(wanted.end, _end(options, now))
    if found := _count(options, schema, timeline, Window(start, max(start, end)), _ROWS):
        _tell("rows_may_change", options, found, now, _MAY_CHANGE)


def _end(options: SourceOptions, now: Micros) -> Micros:
    end = written_before(now)
    return end if options.ending is None else min(end, options.ending)


def _count(
    options: SourceOptions, schema: LogSchema, timeline: Timeline, window: Window, most: int
) -> float:
    """Return the number of rows in a window, or inf if there are more than `most`.

    It is not known for a single partition, whose streams have rows of others.
    """
    if window.length <= 0 or options.partition_key is not None:
        return 0
    return row_count(options, schema, timeline, sample=_STREAMS).rows(window, most)


def _tell(event: str, options: SourceOptions, found: float, now: Micros, remedy: str) -> None:
    rows = f"more than {_ROWS:,}" if found == math.inf else str(round(found))
    settle = format_timestamp(now + options.confidence)
    log.warning(event, table=str(options.table), rows=rows, settled_at=settle, remedy=remedy)
