"""Builds the unstyled HTML tables that `_repr_html_` methods return to notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_LONGEST = 200
"""Longer cells are truncated to this number of characters."""


def html_table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table. Long cells are truncated, and None becomes an empty cell."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return f"<td>{escape(shown)}</td>"
