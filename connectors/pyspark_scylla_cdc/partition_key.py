"""Reading the changes of one partition: its streams, and of these its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from cdc_reader.driver.serial import serialise
from cdc_reader.driver.token import token_of
from cdc_reader.errors import ConfigurationError
from cdc_reader.generation import Generation, StreamGroup
from cdc_reader.kernel.cells import build
from cdc_reader.key_json import parse_key
from cdc_reader.schema import Column, ColumnKind, TableSchema
from cdc_reader.stream_choice import group_of
from cdc_reader.window import BEGINNING, FOREVER, Window

OPTION = "partitionKey"


@frozen(eq=False)
class PartitionKey:
    """A partition of the base table: where its changes are, and which rows are they."""

    token: int
    columns: tuple[Column, ...]
    cells: tuple[pa.Scalar, ...]

    @classmethod
    def parse(cls, text: str, base: TableSchema) -> PartitionKey:
        """The key that a JSON text names; raises ConfigurationError."""
        columns = tuple(c for c in base.columns if c.kind is ColumnKind.PARTITION_KEY)
        try:
            values = parse_key(text, base)
            token = token_of(base, values)
        except ConfigurationError as error:
            remedy = f"{error.option} is {error.value!r}: {error.remedy}"
            raise ConfigurationError(OPTION, text, remedy) from None
        cells = [build(c.type, [serialise(c.type, values[c.name])])[0] for c in columns]
        for column, cell in zip(columns, cells, strict=True):
            if pa.types.is_nested(cell.type):
                remedy = f"key column {column.name} is of type {column.type}: leave {OPTION} out"
                raise ConfigurationError(OPTION, text, remedy)
        return cls(token, columns, tuple(cells))

    def group(self, groups: Iterable[StreamGroup]) -> list[StreamGroup]:
        """The group of a generation's that the partition's stream is in, if it has any.

        Which of the group's streams it is depends on a setting of the nodes that they do not
        publish; there is one for each shard of one node, and one query reads them all.
        """
        generation = Generation(Window(BEGINNING, FOREVER), tuple(groups))
        return [group_of(generation, self.token)] if generation.groups else []

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The partition's rows, of batches that have the columns of the key."""
        for batch in batches:
            pairs = zip(self.columns, self.cells, strict=True)
            same = [pc.equal(batch.column(column.name), cell) for column, cell in pairs]
            found = batch.filter(reduce(pc.and_, same))
            if found.num_rows:
                yield found
