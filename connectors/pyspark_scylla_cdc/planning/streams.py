"""The streams of a generation in one block of memory: 16 bytes each, in ring order.

With a partition key, only streams that may contain the partition's changes are read, and only the
partition's rows are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen

from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.changes.json import value_to_json
from cdc_reader.cluster.values import serialise, token_of
from cdc_reader.cql.json import parse_key
from cdc_reader.cql.schema import Column, TableSchema
from cdc_reader.cql.values import converter
from cdc_reader.decoding.cells import build
from cdc_reader.errors import ConfigurationError
from cdc_reader.reading.deduplication import rows_of
from cdc_reader.streams.generation import Generation, StreamGroup, group_of
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import RangeTask, Task
from cdc_reader.streams.window import Window

OPTION = "partitionKey"
_SIZE = 16


@frozen(eq=False)
class PartitionKey:
    """The key of one base-table partition; finds the partition's streams and filters its rows."""

    token: int
    columns: tuple[Column, ...]
    cells: tuple[pa.Array, ...]
    """The value of each column, as an array of length 1."""

    @classmethod
    def parse(cls, text: str, base: TableSchema) -> PartitionKey:
        """Parse the key from JSON; raise ConfigurationError if it is invalid."""
        columns = base.partition_key
        names = [column.name for column in columns]
        if sorted(json.loads(text)) != sorted(names):
            remedy = f"give a JSON object with the columns of the partition key: {', '.join(names)}"
            raise ConfigurationError(OPTION, text, remedy)
        try:
            values = parse_key(text, base)
            token = token_of(base, values)
        except ConfigurationError as error:
            remedy = f"{error.option} is {error.value!r}: {error.remedy}"
            raise ConfigurationError(OPTION, text, remedy) from None
        cells = [build(c.type, [serialise(c.type, values[c.name])]) for c in columns]
        return cls(token, columns, tuple(cells))

    def group(self, groups: Iterable[StreamGroup]) -> list[StreamGroup]:
        """Return a list with the group of the partition's stream, or [] if there are no groups.

        The partition's stream within the group depends on a setting that nodes do not publish. A
        group has one stream for each shard of a node, and one query reads all of its streams.
        """
        generation = Generation(Window(BEGINNING, FOREVER), tuple(groups))
        return [group_of(generation, self.token)] if generation.groups else []

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the partition's rows, from batches that contain the columns of the key."""
        for batch in batches:
            pairs = zip(self.columns, self.cells, strict=True)
            same = [_equal(batch.column(column.name), cell, column) for column, cell in pairs]
            found = batch.filter(reduce(pc.and_, same))
            if found.num_rows:
                yield found


def _equal(cells: pa.Array, wanted: pa.Array, column: Column) -> pa.BooleanArray:
    """Return a mask of the cells that are the same key as the only cell of `wanted`.

    NaN equals itself, and 0.0 does not equal -0.0.
    """
    if pa.types.is_nested(cells.type):
        [value] = _texts(wanted, column)
        return pa.array([text == value for text in _texts(cells, column)], pa.bool_())
    if pa.types.is_floating(cells.type):
        bits = pa.int32() if cells.type.bit_width == 32 else pa.int64()
        cells, wanted = cells.view(bits), wanted.view(bits)
    return pc.equal(cells, wanted[0])


def _texts(cells: pa.Array, column: Column) -> list[str]:
    return [json.dumps(value_to_json(value)) for value in converter(column.type)(cells)]


@frozen(slots=False)
class Streams:
    """Consecutive stream ids, in the order of their tokens."""

    raw: bytes = field(repr=False)

    @classmethod
    def of(cls, groups: Iterable[StreamGroup]) -> Streams:
        """Collect the streams of a generation."""
        generation = Generation(Window(BEGINNING, FOREVER), tuple(groups))
        raw = b"".join(b"".join(group.streams) for group in generation.groups)
        order = np.argsort(_tokens(raw), kind="stable")
        return cls(np.frombuffer(raw, f"V{_SIZE}")[order].tobytes())

    def __len__(self) -> int:
        return len(self.raw) // _SIZE

    def __iter__(self) -> Iterator[StreamId]:
        places = range(0, len(self.raw), _SIZE)
        return (StreamId(self.raw[at : at + _SIZE]) for at in places)

    def __contains__(self, stream: bytes) -> bool:
        token = StreamId(stream).token
        first = int(np.searchsorted(self._tokens, token))
        last = int(np.searchsorted(self._tokens, token, "right"))
        return any(self.part(at, at + 1).raw == stream for at in range(first, last))

    def part(self, first: int, last: int) -> Streams:
        """Return the part from stream `first` to `last`, exclusive."""
        return Streams(self.raw[first * _SIZE : last * _SIZE])

    def tokens(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of tokens of stream `first` to `last`, exclusive.

        The first range begins, and the last one ends, where the ring does. So the ranges of all
        parts contain all streams, even those that become known later.
        """
        start = int(self._tokens[first]) if first else MIN_TOKEN
        end = int(self._tokens[last]) if last < len(self) else MAX_TOKEN + 1
        return start, end

    def between(self, start: int, end: int) -> Streams:
        """Return the streams with tokens from `start` to `end`, exclusive."""
        first = int(np.searchsorted(self._tokens, start))
        last = int(np.searchsorted(self._tokens, end - 1, "right"))
        return self.part(first, last)

    def sample(self, count: int) -> Streams:
        """Return at most `count` streams, spread evenly around the ring."""
        places = sorted({len(self) * number // count for number in range(count)})
        return Streams(b"".join(self.part(place, place + 1).raw for place in places))

    def tasks(self, window: Window, chunk: int) -> Iterator[Task]:
        """Yield tasks of up to `chunk` streams each."""
        for first in range(0, len(self), chunk):
            yield Task(window, tuple(self.part(first, first + chunk)))

    def range_task(self, window: Window) -> RangeTask:
        """Return a task for the token range of these streams.

        Its result may contain rows of other streams, which `rows` leaves out.
        """
        start, end = int(self._tokens[0]) - 1, int(self._tokens[-1])
        return RangeTask(window, max(start, MIN_TOKEN), end)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these streams; no batch is empty."""
        for batch in batches:
            if (own := rows_of(batch, self.__contains__)).num_rows:
                yield own

    @cached_property
    def _tokens(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return _tokens(self.raw)


def _tokens(raw: bytes) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the first half of each id."""
    return np.frombuffer(raw, ">i8")[::2].astype(np.int64)
