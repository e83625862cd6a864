"""Opens copies of tables: Delta tables, and Parquet files or folders, without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from attrs import frozen

from cdc_reader._extras import not_installed
from cdc_reader.checkpoints.spark import SparkCheckpoint
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError, ConfigurationError, UnsupportedTableError
from cdc_reader.reading.cursor import Checkpoint

if TYPE_CHECKING:
    from deltalake import DeltaTable

VERSION = VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
"""Columns of a copy with history, in which each row is a version of a row of the table."""
_ROWS = 16_384
"""The number of rows of a batch."""
_REMEDY = "give the path of a Delta table, or of a Parquet file or folder"


@frozen
class StoredCopy:
    """The rows of a Delta table or of Parquet files, as they were when they were opened."""

    name: str
    dataset: ds.Dataset
    only_current: bool = False
    """True for a copy with history, of which only the current versions are compared."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the copy."""
        return self.dataset.schema

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `CopyRows.batches`."""
        wanted = {name: ds.field(name) for name in names}  # a plain list splits names at dots
        which = ds.field(IS_CURRENT) if self.only_current else None
        # Few files at a time, because read-ahead takes memory.
        scanner = self.dataset.scanner(
            wanted, filter=which, batch_size=_ROWS, batch_readahead=4, fragment_readahead=1
        )
        yield from scanner.to_batches()


def is_path(target: str) -> bool:
    """Return True for the path of a copy, and False for the nodes of a cluster."""
    return "/" in target or Path(target).exists()


def open_copy(path: str, table: Collection[str]) -> StoredCopy:
    """Open the copy of a table with the columns `table`.

    Raises ConfigurationError if there is none at the path, or if deltalake is needed but missing,
    and UnsupportedTableError if deltalake cannot read it.
    """
    dataset = _delta(path) if _is_delta(path) else _parquet(path)
    return StoredCopy(path, dataset, has_history(dataset.schema.names, table))


def has_history(copy: Collection[str], table: Collection[str]) -> bool:
    """Return True if a copy with these columns contains all versions of the table's rows."""
    return set(copy).issuperset(VERSION) and set(table).isdisjoint(VERSION)


def position_in(checkpoint: Path, table: TableName) -> Checkpoint:
    """Return the position of the copy that a Spark query keeps current, from its checkpoint.

    Raises CheckpointError if the query has not copied all rows of the table yet.
    """
    stored = SparkCheckpoint(checkpoint, table)
    position = stored.complete()
    if position is None:
        raise CheckpointError(
            f"the query of {checkpoint} has not copied all rows of {table} yet: let it run until "
            "its snapshot is complete, or give the checkpoint of another copy"
        )
    return position


def _is_delta(path: str) -> bool:
    if "://" not in path:
        return (Path(path) / "_delta_log").is_dir()
    return bool(_deltalake(path).DeltaTable.is_deltatable(path))


def _deltalake(path: str) -> Any:
    try:
        import deltalake
    except ModuleNotFoundError as error:
        told = not_installed("a Delta table", error, "lake").partition(": ")[2]
        raise ConfigurationError("target", path, told) from None
    return deltalake


def _delta(path: str) -> ds.Dataset:
    deltalake = _deltalake(path)
    options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
    try:
        table: DeltaTable = deltalake.DeltaTable(path)
        return table.to_pyarrow_dataset(parquet_read_options=options)
    except deltalake.exceptions.DeltaError as error:
        why = " ".join(str(error).split())
        raise UnsupportedTableError(
            f"deltalake cannot read {path} ({why}): compare it in Spark, with Mirror.compare()"
        ) from None


def _parquet(path: str) -> ds.Dataset:
    # Spark writes timestamps of 96 bits, which as nanoseconds reach only from 1677 to 2262.
    kind = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
    try:
        found = ds.dataset(path, format=kind, partitioning="hive")
        # Files that were written before the table gained a column lack it.
        schemas = (fragment.physical_schema for fragment in found.get_fragments())
        whole = pa.unify_schemas([found.schema, *schemas], promote_options="permissive")
        return found.replace_schema(whole)
    except (OSError, pa.ArrowInvalid):
        raise ConfigurationError("target", path, _REMEDY) from None
