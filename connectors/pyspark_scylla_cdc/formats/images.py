"""Which images a table has to keep in its log for what is asked of it, and how to turn them on."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from cdc_reader.cql_type import is_multi_cell
from cdc_reader.errors import UnsupportedTableError
from cdc_reader.schema import CdcOptions, Column, ImageMode, TableSchema
from pyspark_scylla_cdc.formats.asked import Asked, Preimages


def gives_preimages(cdc: CdcOptions, asked: Asked) -> bool:
    """Whether rows as they were before come out: whole ones, or with the word what is shown."""
    if asked.preimages is Preimages.NONE or cdc.preimage is ImageMode.OFF:
        return False
    return cdc.preimage is ImageMode.FULL or asked.include_delta


def require_full_preimages(base: TableSchema) -> None:
    """Raise UnsupportedTableError unless the log has each changed row as it was before."""
    wanted = evolve(base.cdc, preimage=ImageMode.FULL)
    _require(base, wanted, "preimages is 'require', and the log has no full preimages", "")


def require_postimages(base: TableSchema, reason: str, remedy: str = "") -> None:
    """Raise UnsupportedTableError unless the log has each changed row as it was after."""
    _require(base, evolve(base.cdc, postimage=True), reason, remedy)


def require_deltas(base: TableSchema, reason: str) -> None:
    """Raise UnsupportedTableError unless the log has what each change modified."""
    _require(base, evolve(base.cdc, delta_keys_only=False), reason, "")


def require_readable_deltas(base: TableSchema, columns: Iterable[Column]) -> None:
    """Raise UnsupportedTableError unless deltas alone tell what becomes of these columns.

    Of a collection that is not frozen a delta has the elements that came and those that went:
    no value of the column.
    """
    require_deltas(base, "without postimages, values come from deltas, and the log has keys only")
    if parts := [column.name for column in columns if is_multi_cell(column.type)]:
        require_postimages(
            base,
            f"of {', '.join(parts)} the log has the elements that changed, not the value",
            ", or leave them out with the option columns",
        )


def alter_statement(base: TableSchema, cdc: CdcOptions) -> str:
    """The statement that gives the table these options: all of them, for it replaces them all."""
    options = {
        "enabled": "true",
        "preimage": cdc.preimage.value,
        "postimage": str(cdc.postimage).lower(),
        "delta": "keys" if cdc.delta_keys_only else "full",
        "ttl": str(cdc.ttl),
    }
    text = ", ".join(f"'{name}': '{value}'" for name, value in options.items())
    return f"ALTER TABLE {base.name.cql} WITH cdc = {{{text}}}"


def _require(base: TableSchema, wanted: CdcOptions, reason: str, remedy: str) -> None:
    if base.cdc != wanted:
        raise UnsupportedTableError(
            f"{base.name}: {reason}; change what it logs from now on: "
            f"{alter_statement(base, wanted)}{remedy}"
        )
