"""Checks that a table's log has the images that a query needs; errors say how to enable them."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from cdc_reader.cql.schema import CdcOptions, Column, ImageMode, TableSchema
from cdc_reader.cql.types import is_multi_cell
from cdc_reader.errors import UnsupportedTableError


def gives_preimages(cdc: CdcOptions, wanted: str, *, partial: bool) -> bool:
    """Return whether to emit preimages. Partial preimages are emitted only if `partial` is True."""
    if wanted == "none" or cdc.preimage is ImageMode.OFF:
        return False
    return cdc.preimage is ImageMode.FULL or partial


def require_preimages(base: TableSchema, wanted: str, *, postimages: bool) -> None:
    """Raise UnsupportedTableError unless the log has full preimages, if `wanted` requires them.

    With `postimages`, the statement in the error also enables postimages.
    """
    if wanted == "require" and base.cdc.preimage is not ImageMode.FULL:
        images = evolve(
            base.cdc, preimage=ImageMode.FULL, postimage=base.cdc.postimage or postimages
        )
        _require(base, images, "preimages is 'require', but the log has no full preimages", "")


def require_postimages(base: TableSchema, reason: str, remedy: str = "") -> None:
    """Raise UnsupportedTableError unless the log has postimages."""
    _require(base, evolve(base.cdc, postimage=True), reason, remedy)


def require_deltas(base: TableSchema, reason: str) -> None:
    """Raise UnsupportedTableError unless the log shows what each change modified."""
    _require(base, evolve(base.cdc, delta_keys_only=False), reason, "")


def require_readable_deltas(base: TableSchema, columns: Iterable[Column]) -> None:
    """Raise UnsupportedTableError unless deltas alone show the new values of these columns."""
    require_deltas(base, "without postimages, values come from deltas, but the log has keys only")
    if parts := unreadable_deltas(columns):
        require_postimages(
            base,
            f"for {', '.join(parts)} the log has only the elements that changed, not the "
            "whole value",
            ", or leave them out with columns",
        )


def unreadable_deltas(columns: Iterable[Column]) -> list[str]:
    """Return the names of the columns whose new values deltas alone do not show.

    The delta of a non-frozen collection shows the elements added and removed, but not the column's
    value.
    """
    return [column.name for column in columns if is_multi_cell(column.type)]


def alter_statement(base: TableSchema, cdc: CdcOptions) -> str:
    """Return the statement that sets the table's CDC options.

    The statement contains all options, because it replaces the whole map of options.
    """
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
