"""Formats a change as text: one line, and one more line for each image in the log.

Values are written as in JSON, so text is in quotes. Unprintable characters are escaped, so no value
can manipulate a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from typing import Any

from rich.text import Text

from cdc_reader.changes.change import Bound, Change
from cdc_reader.changes.delta import Assigned, CollectionDelta, Deleted, Delta
from cdc_reader.changes.json import value_to_json
from cdc_reader.changes.operation import ChangeOperation
from cdc_reader.cql.types import ListType

_STYLES = {ChangeOperation.INSERT: "green", ChangeOperation.UPDATE: "yellow"}
_WIDTH = len("insert")


def change_text(change: Change, *, names_table: bool) -> Text:
    """Format the change on one or more lines, with its table if `names_table` is True."""
    text = Text.assemble(
        (_time(change), "dim"), "  ", (_operation(change).ljust(_WIDTH), _style(change)), "  "
    )
    if names_table:
        text.append(f"{_printable(str(change.table))}  ")
    text.append(_columns(change, change.key), "bold")
    for note in _notes(change):
        text.append(f"  {note}")
    for name, image in (("before", change.before), ("after", change.after)):
        if image is not None:
            text.append(f"\n    {name:6}  {_columns(change, image) or '(no columns)'}", "dim")
    return text


def row_text(cells: Mapping[str, Any]) -> str:
    """Format cells, given by column, on one line."""
    return ", ".join(f"{_printable(name)}={_value(value)}" for name, value in cells.items())


def _time(change: Change) -> str:
    moment = change.written_at.astimezone(UTC).replace(tzinfo=None)
    return f"{moment.isoformat(timespec='microseconds')}Z"


def _operation(change: Change) -> str:
    return change.operation.value.replace("_", " ")


def _style(change: Change) -> str:
    return "red" if change.operation.is_delete else _STYLES.get(change.operation, "magenta")


def _notes(change: Change) -> Iterator[str]:
    """Yield notes about a change: what was written, and remarks such as `(late)`."""
    if (bounds := change.range) is not None:
        yield f"from {_bound(change, bounds.start)} to {_bound(change, bounds.end)}"
    deltas = (_delta(change, name, delta) for name, delta in change.deltas.items())
    if written := ", ".join(deltas):
        yield written
    if not change.deltas_shown:
        yield "(the log has keys only)"
    if undecoded := change.undecoded:
        yield f"(not decoded: {row_text(undecoded)})"
    if change.ttl is not None:
        yield f"for {change.ttl} s"
    yield from (
        f"({word})"
        for word, applies in (
            ("static row", change.is_static),
            ("late", change.late),
            ("incomplete", not change.complete),
        )
        if applies
    )


def _bound(change: Change, bound: Bound | None) -> str:
    if bound is None:
        return "?"
    if not bound.prefix:
        return "open"
    kind = "inclusive" if bound.inclusive else "exclusive"
    return f"{_columns(change, bound.prefix)} {kind}"


def _delta(change: Change, name: str, delta: Delta) -> str:
    column = _printable(name)
    match delta:
        case Assigned(value):
            return f"{column} = {_value(value)}"
        case Deleted():
            return f"{column} = null"
        case CollectionDelta(overwritten, added, removed):
            is_list = name in _lists(change)
            parts = [f"{'=' if overwritten else '+'} {_value(added, is_list=is_list)}"]
            parts = parts if added or overwritten else []
            if removed:
                parts.append(f"- {_value(removed)}")
            return f"{column} {' '.join(parts)}"


def _columns(change: Change, cells: Mapping[str, Any]) -> str:
    lists = _lists(change)
    return ", ".join(
        f"{_printable(name)}={_value(value, is_list=name in lists)}"
        for name, value in cells.items()
    )


def _lists(change: Change) -> Iterable[str]:
    """Return the names of non-frozen list columns.

    The log identifies their elements by ids, which mean nothing to people.
    """
    columns = change.schema.base.columns
    return [c.name for c in columns if isinstance(c.type, ListType) and not c.type.frozen]


def _value(value: Any, *, is_list: bool = False) -> str:
    if is_list and isinstance(value, Mapping):
        value = tuple(value.values())
    return _printable(json.dumps(value_to_json(value), ensure_ascii=False))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
