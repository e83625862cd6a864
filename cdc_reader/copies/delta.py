"""A Delta table that deltalake writes: one commit changes rows, and records that it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from cdc_reader.copies.columns import quoted
from cdc_reader.copies.merging import Merge
from cdc_reader.errors import ConfigurationError, SchemaError

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, Schema, WriterProperties

_COMPUTED = frozenset(("delta.generationExpression", "delta.identity.start"))
"""What the metadata of a generated column contains."""

_FIRST_DAY, _LAST_DAY = -96_465_292, 95_026_236
"""The first and the last date that deltalake can write, in days since 1970."""


@frozen
class Remedies:
    """What an error tells users to do: Spark's `mirror` has other ways out than the command."""

    install: str
    """If deltalake is not installed."""
    table: str
    """If deltalake cannot keep the table."""
    column: str
    """If deltalake cannot keep a column."""


class DeltaFiles:
    """The Delta table at a path.

    Raises ConfigurationError if deltalake is missing, or cannot use the path.
    """

    def __init__(self, path: str, remedies: Remedies) -> None:
        try:
            import deltalake
        except ImportError:
            raise ConfigurationError("format", "delta", remedies.install) from None
        if re.search(r"%[0-9A-Fa-f]{2}|[\\\[\]|^]", path):
            remedy = (
                "deltalake changes backslashes, and '%' with two digits, and writes to no path "
                "with one of '[]|^': leave them out"
            )
            raise ConfigurationError("target", path, remedy)
        self.deltalake: Any = deltalake
        self.path = path
        self._remedies = remedies

    def create(
        self, schema: Schema, properties: Mapping[str, str], partition_by: str | None = None
    ) -> None:
        """Create the table, unless there is one."""
        self.deltalake.DeltaTable.create(
            self.path,
            schema=schema,
            mode="ignore",
            partition_by=partition_by,
            configuration=properties,
            raise_if_key_not_exists=False,
        )

    def table(self) -> DeltaTable:
        """Return the table; raise ConfigurationError if it cannot be read and written as files."""
        table: DeltaTable = self.deltalake.DeltaTable(self.path)
        if found := [*_not_plain(table)]:
            remedy = (
                f"the table has {' and '.join(found)}, with which its files cannot be read or "
                f"written alone: {self._remedies.table}, or give a new path"
            )
            raise ConfigurationError("target", self.path, remedy)
        refuse_append_only(self.path, table.metadata().configuration)
        return table

    def append(self, table: DeltaTable, rows: pa.Table, name: str, version: int) -> None:
        """Add rows, and record the version under the name, in one commit.

        Columns that the rows lack, because the table has dropped them, become null.
        """
        self._check(rows, table)
        schema, noted = pa.schema(table.schema().to_arrow()), self.noted(name, version)
        for field in schema:
            if field.name not in rows.schema.names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        whole = rows.select(schema.names)
        self.deltalake.write_deltalake(
            table,
            whole,
            mode="append",
            commit_properties=noted,
            writer_properties=self.writer_properties(table),
        )

    def merge(
        self, table: DeltaTable, updates: pa.Table, merge: Merge, name: str, version: int
    ) -> None:
        """Merge updates, and record the version under the name, in one commit.

        `updates` have the columns of the copy, and those with the kind and the flags.
        """
        self._check(updates, table)
        if updates.num_rows:
            (
                table.merge(
                    updates,
                    merge.condition_without_equals,
                    source_alias="s",
                    target_alias="t",
                    writer_properties=self.writer_properties(table),
                    streamed_exec=False,  # all updates are here: their number helps the planner
                    commit_properties=self.noted(name, version),
                )
                .when_matched_delete(merge.is_gone)
                .when_matched_update({quoted(name): it for name, it in merge.updates.items()})
                .when_not_matched_insert(
                    {quoted(name): it for name, it in merge.inserts.items()}, merge.is_new
                )
                .execute()
            )
        if table.transaction_version(name) != version:  # no row has changed: nothing was committed
            self.note(table, name, version)

    def note(self, table: DeltaTable, name: str, version: int) -> None:
        """Record the version under the name."""
        self.append(table, pa.schema(table.schema().to_arrow()).empty_table(), name, version)

    def add_columns(self, table: DeltaTable, schema: Schema) -> None:
        """Add the columns, and the fields inside columns, that the table lacks."""
        nothing = pa.schema(schema.to_arrow()).empty_table()
        self.deltalake.write_deltalake(table, nothing, mode="append", schema_mode="merge")

    def noted(self, name: str, version: int) -> CommitProperties:
        """Return the properties of a commit that records the version under the name."""
        done = self.deltalake.Transaction(name, version)
        noted: CommitProperties = self.deltalake.CommitProperties(app_transactions=[done])
        return noted

    def writer_properties(self, table: DeltaTable) -> WriterProperties:
        """Return how the table's files are written: in less time and space than by default.

        Columns of numbers have no dictionaries. Those of keys fill before they help, after which
        the writer starts again without.
        """
        plain = self.deltalake.ColumnProperties(dictionary_enabled=False)
        fields = pa.schema(table.schema().to_arrow())
        numbers = {field.name: plain for field in fields if pa.types.is_primitive(field.type)}
        found: WriterProperties = self.deltalake.WriterProperties(
            compression="ZSTD", compression_level=1, column_properties=numbers
        )
        return found

    def refuse_backticks(self, columns: Iterable[str]) -> None:
        """Raise ConfigurationError for names that deltalake cannot quote."""
        if taken := [name for name in columns if "`" in name]:
            remedy = (
                f"column {taken[0]} has a backtick in its name, which deltalake cannot quote: "
                f"{self._remedies.column}"
            )
            raise ConfigurationError("target", self.path, remedy)

    def _check(self, rows: pa.Table, table: DeltaTable) -> None:
        """Raise SchemaError for values that the table cannot have."""
        for name in rows.schema.names:
            if _has_far_date(rows.column(name).combine_chunks()):
                raise SchemaError(
                    f"column {name} has a date outside the years -262143 to 262142, which "
                    f"deltalake cannot write: {self._remedies.column}"
                )
        for name in table.metadata().partition_columns:
            if name in rows.schema.names and _has_empty(rows.column(name)):
                raise empty_in_partition(name)


def _not_plain(table: DeltaTable) -> Iterator[str]:
    """Yield what the table has that its Parquet files do not show."""
    features = {*(table.protocol().reader_features or ())}
    if "deletionVectors" in features:
        yield "deletion vectors"
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if "columnMapping" in features or mode != "none":
        yield "mapped columns"
    if any(_COMPUTED.intersection(field.metadata) for field in table.schema().fields):
        yield "generated columns"


def _has_empty(cells: pa.ChunkedArray) -> bool:
    """Return whether one of the cells is an empty text or blob."""
    if not (pa.types.is_string(cells.type) or pa.types.is_binary(cells.type)):
        return False
    found: bool | None = pc.any(pc.equal(pc.binary_length(cells), 0)).as_py()
    return bool(found)


def _has_far_date(cells: pa.Array) -> bool:
    """Return whether a cell is, or has in a field, a date that deltalake cannot write."""
    if pa.types.is_struct(cells.type):
        return any(_has_far_date(cells.field(number)) for number in range(cells.type.num_fields))
    if not pa.types.is_date32(cells.type):
        return False
    bounds = pc.min_max(cells.cast(pa.int32()))
    first, last = bounds["min"].as_py(), bounds["max"].as_py()
    return first is not None and not _FIRST_DAY <= first <= last <= _LAST_DAY


def refuse_append_only(target: str, properties: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a Delta table with properties that allow no updates."""
    if properties.get("delta.appendOnly", "false") == "true":
        remedy = "its property delta.appendOnly allows no updates: unset it, or give a new path"
        raise ConfigurationError("target", target, remedy)


def empty_in_partition(name: str) -> SchemaError:
    """Return the error for an empty text or blob by which a Delta table would be partitioned."""
    return SchemaError(
        f"column {name} has an empty value, which a Delta table that is partitioned by this column "
        "stores as null: give a target that is partitioned by other columns"
    )
