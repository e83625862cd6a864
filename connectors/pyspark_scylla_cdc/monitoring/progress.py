"""Creates a `StreamStatus` from Spark's progress message and offsets."""

from __future__ import annotations

import ast
import json
from typing import Any

from cdc_reader._time import FOREVER, Micros, as_datetime
from cdc_reader.cql.names import TableName
from cdc_reader.errors import ConfigurationError
from cdc_reader.streams.ring import WHOLE_RING, TokenRange
from cdc_reader.streams.shard import MIN_TOKEN
from pyspark_scylla_cdc.monitoring.known import COPIES
from pyspark_scylla_cdc.monitoring.status import StreamStatus
from pyspark_scylla_cdc.offsets.offset import Offset, SnapshotState
from pyspark_scylla_cdc.offsets.spark_checkpoint import Plan


def offset_of(text: str) -> Offset | None:
    """Parse an offset of a query's progress; return None if it is from another data source."""
    try:
        return Offset.from_json(_parsed(text))
    except (ConfigurationError, ValueError, SyntaxError):
        return None


def _parsed(text: str) -> Any:
    """Parse JSON, or the text of a Python dict.

    Spark passes the text of a dict if PySpark parsed the progress from JSON, as with Spark Connect
    and in the `recentProgress` of Spark 4.1.
    """
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text)


def status_of(progress: Any, source: Any, end: Offset, now: Micros) -> StreamStatus:
    """Return a query's status after a micro-batch that leaves its `source` at `end`.

    `progress` and `source` are Spark's StreamingQueryProgress and SourceProgress.
    """
    is_moved = source.startOffset != source.endOffset
    since = None if source.startOffset is None else offset_of(source.startOffset)
    lost = end.lost if end.begins_anew(since) else None
    return StreamStatus(
        query=progress.name or str(progress.id),
        batch=progress.batchId,
        rows=source.numInputRows,
        rows_per_second=source.processedRowsPerSecond,
        seconds=progress.durationMs.get("triggerExecution", 0) / 1_000,
        late_rows=len(end.rows) + end.late_rows if is_moved else 0,
        snapshot_share=_snapshot_share(since, end),
        lost=None if lost is None else (as_datetime(lost.start), as_datetime(lost.end)),
        copy=COPIES.get(str(progress.id)),
        **_place(end, now),
    )


def status_at(plan: Plan, end: Offset, now: Micros) -> StreamStatus:
    """Return the status of a query that has committed the micro-batch `plan`, which ends at `end`.

    The query has read nothing since.
    """
    share = TokenRange(MIN_TOKEN, end.done).size / WHOLE_RING.size
    return StreamStatus(
        query=plan.query,
        batch=plan.number,
        rows=0,
        rows_per_second=0.0,
        seconds=0.0,
        late_rows=0,
        snapshot_share=share if end.is_before_snapshot else None,
        copy=COPIES.get(plan.query),
        **_place(end, now),
    )


def _place(end: Offset, now: Micros) -> dict[str, Any]:
    """Return what an offset says of its table, and of where the query is in the log."""
    keyspace, _, name = end.table.partition(".")
    newest = end.cursor.generation
    expires = end.cursor.ttls.expires(end.position)
    return {
        "table": TableName(keyspace, name),
        "position": as_datetime(end.position),
        "expires": None if expires == FOREVER else as_datetime(expires),
        "as_of": as_datetime(now),
        "generation": None if newest is None else as_datetime(newest),
    }


def _snapshot_share(since: Offset | None, end: Offset) -> float | None:
    """Return the share of a snapshot read by `end`; None if it was already complete at `since`.

    Spark reports no start for a query's first micro-batch.
    """
    is_first = since is None and end.snapshot is not SnapshotState.NONE
    if not (is_first or end.begins_anew(since) or (since is not None and since.is_before_snapshot)):
        return None
    return TokenRange(MIN_TOKEN, end.done).size / WHOLE_RING.size
