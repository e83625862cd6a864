"""Python data sources that only return ready-made data, to measure the cost of Spark itself."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType


class Ready(DataSource):
    """Returns the batch stored in the file `path`, `times` times.

    `kind` is ``batches`` or ``tuples``. Tuples are made only once. `schema` is Spark's schema, as
    JSON. A stream returns the batch once per micro-batch in each of its `partitions`.
    """

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.options["schema"]))

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return ReadyReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        del schema
        return ReadyStream(self.options)


class ReadyReader(DataSourceReader):
    """Reads the data as one partition."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path, self._times = options["path"], int(options["times"])
        self._as_tuples = options["kind"] == "tuples"

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        del partition
        batch = _batch(self._path)
        if self._as_tuples:
            rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            for _ in range(self._times):
                yield from rows
        else:
            for _ in range(self._times):
                yield batch


class ReadyStream(DataSourceStreamReader):
    """Offers a micro-batch whenever Spark polls. The offset is a time."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path, self._partitions = options["path"], int(options["partitions"])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"at": 0}

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, int]:
        del start, limit
        return {"at": time.time_ns() // 1_000}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        del start, end
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        yield _batch(self._path)


def _batch(path: str) -> pa.RecordBatch:
    with pa.OSFile(path) as file:
        return pa.ipc.open_file(file).get_batch(0)
