"""Adapts the source to older versions of Spark.

Spark 4.2 and later tell a stream reader where a micro-batch starts and whether limits apply, and
let it prepare for the trigger ``availableNow``. `streaming.stream` is written for these versions.

Spark 4.0 and 4.1 only request the end of the next micro-batch; `WithoutStart` adapts a stream
reader to these versions. Their trigger ``availableNow`` runs a single micro-batch, as ``once``
does, and limits apply to this micro-batch. A query whose limits leave rows unread logs a warning;
`mirror` repeats such a run until no rows are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyspark
from attrs import frozen
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from cdc_reader._log import get_logger
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.options.errors import hide_traceback

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:
    TELLS_START = False

    class ReadLimit:  # type: ignore[no-redef]
        """Replaces Spark's class of this name, which older versions lack."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Replaces Spark's class of this name, which older versions lack."""

    @frozen
    class ReadMaxFiles(ReadLimit):  # type: ignore[no-redef]
        """Replaces Spark's class of this name, which older versions lack."""

        max_files: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Replaces Spark's class of this name, which older versions lack."""

else:
    TELLS_START = True
    """Whether Spark passes the start of a micro-batch to a stream reader."""

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxFiles",
    "SupportsTriggerAvailableNow",
    "for_this_spark",
]

log = get_logger(__name__)

_WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
_ONE_RUN = (
    "a run with trigger availableNow or once reads one micro-batch, and leaves rows unread: use "
    "trigger processingTime, or run the query again until a run has no micro-batch; mirror does so "
    "with availableNow"
)


def for_this_spark(
    reader: DataSourceStreamReader, limits: Sequence[str] = ()
) -> DataSourceStreamReader:
    """Adapt the stream reader to the running Spark.

    `limits` are the names of the options that limit its micro-batches.
    """
    return reader if TELLS_START else WithoutStart(reader, limits)


class WithoutStart(DataSourceStreamReader):
    """A stream reader for Spark versions that do not say where a micro-batch starts.

    * On a restart, Spark first calls `partitions` with the last offset of the checkpoint as both
      start and end. From then on, each micro-batch starts where the last planned one ends.
    * Spark may request the latest offset only to report it. The same offset is therefore returned
      until a micro-batch is planned up to it.
    * Spark does not say which trigger is used, so the limits of the options always apply. If they
      leave rows unread, a warning is logged once, because a run may end with this micro-batch.
    """

    def __init__(self, reader: DataSourceStreamReader, limits: Sequence[str] = ()) -> None:
        self._reader = reader
        self._limit = reader.getDefaultReadLimit()
        self._limits = limits
        self._position: dict[str, Any] | None = None
        self._offered: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._reader.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - Spark's name
        if self._offered is None:
            start = self.initialOffset() if self._position is None else self._position
            settled = self._reader.reportLatestOffset() if self._limits else None
            offered = self._reader.latestOffset(start, self._limit)
            if settled is not None and self._leaves_rows(start, offered, settled):
                options, self._limits = ", ".join(self._limits), ()
                version = pyspark.__version__
                log.warning("one_micro_batch", spark=version, options=options, remedy=_ONE_RUN)
            if offered == self._position:
                return offered
            self._offered = offered
        return self._offered

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if self._position is None and self._offered is not None:
            self._refuse_restart(start)
        self._position, self._offered = end, None
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def __repr__(self) -> str:
        return repr(self._reader)

    def _leaves_rows(
        self, start: dict[str, Any], offered: dict[str, Any], settled: dict[str, Any]
    ) -> bool:
        """Return True if a run that ends at `offered` may leave settled rows unread."""
        is_behind = offered != start and offered["position"] < settled["position"]
        return bool(is_behind or offered.get("token") is not None)

    @hide_traceback()
    def _refuse_restart(self, start: dict[str, Any]) -> None:
        """Raise ConfigurationError if an offset was offered before the checkpoint was known.

        This shows that Spark has wrapped the source for the trigger ``availableNow``. The wrapper
        requests the latest offset before Spark passes the checkpoint's offset, so the offset that
        was offered may be earlier than the checkpoint's.
        """
        if start != self.initialOffset():
            remedy = (
                f"Spark {pyspark.__version__} then asks for an offset before it says where the "
                "checkpoint is, so this query could repeat rows: leave it 'false', or use Spark "
                "4.2 or later"
            )
            raise ConfigurationError(_WRAPPER, "true", remedy)
