"""Readers as the source creates them, with a clock that the test advances."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from cdc_reader._time import Clock
from pyspark_scylla_cdc.batch import BatchReader
from pyspark_scylla_cdc.clusters import cluster_of
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.sessions import row_format, schema_of
from pyspark_scylla_cdc.streaming.stream import StreamReader


def batch_reader(options: SourceOptions, clock: Clock | None = None) -> BatchReader:
    """Return the reader of a batch query for all columns of the format."""
    schema = schema_of(options)
    return BatchReader(options, schema, tuple(row_format(options, schema).schema.names), clock)


def stream_reader(options: SourceOptions, clock: Clock) -> StreamReader:
    """Return the reader of a streaming query for all columns of the format."""
    schema = schema_of(options)
    return StreamReader(options, schema, tuple(row_format(options, schema).schema.names), clock)


def offset_at(stream: StreamReader, position: int) -> dict[str, Any]:
    """Return an offset of the query's table at `position`, without a pending snapshot."""
    return {**stream.reportLatestOffset(), "position": position}


@contextmanager
def stream_readers(known: Mapping[str, str], clock: Clock) -> Iterator[Callable[..., StreamReader]]:
    """Yield a function that creates stream readers with `known` and additional options."""
    with ExitStack() as opened:

        def make(**more: str) -> StreamReader:
            options = SourceOptions.parse({**known, **more})
            opened.callback(cluster_of(options.connection(), options.read).connection.close)
            return stream_reader(options, clock)

        yield make
