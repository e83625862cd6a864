"""Waits for the rows of a copy, and compares all of them with the rows of its table."""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.sql import functions as sf

from pyspark_scylla_cdc.tables.layout import VALID_FROM, VALID_TO, VERSION
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import in_order, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pyspark_scylla_cdc import Mirror

Row = dict[str, Any]
Key = tuple[int, str, str]

_KEY = ("pk", "a", "b")
_CONDITION = re.compile(r"(pk|a|b) (=|>|>=|<|<=) (\S+)")
_COMPARE = {
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def await_rows(copy: Mirror, count: int) -> None:
    """Wait until a running copy has at least this many rows; raise the error of a failed query."""
    while copy.read().count() < count:
        copy.awaitTermination(timeout=1)


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait until a condition holds; the test's own timeout ends a wait in vain."""
    while not is_true():
        threading.Event().wait(0.05)


def made_by_updates(statements: Iterable[str]) -> set[Key]:
    """Return the keys that an UPDATE wrote after the last DELETE that covers them.

    Only these rows may disappear from the table without a delete: with their last value. A copy
    keeps them if it has forgotten that no INSERT created them.
    """
    found: set[Key] = set()
    for text in statements:
        conditions = _CONDITION.findall(text.partition(" WHERE ")[2])
        if text.startswith("DELETE"):
            found = {key for key in found if not _covers(conditions, key)}
        elif text.startswith("UPDATE") and len(conditions) == len(_KEY):
            pk, a, b = (value.strip("'") for _, _, value in conditions)
            found.add((int(pk), a, b))
    return found


def check_copy(copy: Sequence[Row], table: Sequence[Row], by_updates: set[Key]) -> None:
    """Assert that the copy has all rows of the table, with equal values, and no others.

    Of the rows `by_updates`, the copy may have more, without values.
    """
    copied, rows = (
        {_key(row): _values(row) for row in side if _is_row(row)} for side in (copy, table)
    )
    assert {key: copied.get(key) for key in rows} == rows
    for key in copied.keys() - rows.keys():
        assert not any(copied[key].values()), f"a row that the table does not have: {key}"
        assert key in by_updates, f"a row that was deleted or never written: {key}"
    assert _statics(copy) == _statics(table)
    alone = [row["pk"] for row in copy if not _is_row(row)]
    assert len(alone) == len(set(alone))
    assert not set(alone) & {pk for pk, _, _ in copied}


def _covers(conditions: list[tuple[str, str, str]], key: Key) -> bool:
    """Return whether a row fulfils the conditions of a WHERE clause."""
    cells = dict(zip(_KEY, map(str, key), strict=True))
    return all(
        _COMPARE[compare](_order(name, cells[name]), _order(name, value.strip("'")))
        for name, compare, value in conditions
    )


def _order(name: str, text: str) -> Any:
    """Return the sort key of a cell of the primary key: timeuuids are in order of their times."""
    return UUID(text).time if name == "b" else text


def _is_row(row: Row) -> bool:
    """Return False for the row that shows the static columns of a partition without rows."""
    return row["a"] is not None


def _key(row: Row) -> Key:
    return row["pk"], row["a"], row["b"]


def _values(row: Row) -> Row:
    """Return the values of a row's own columns."""
    return {name: cell for name, cell in row.items() if name not in (*_KEY, "s")}


def _statics(rows: Iterable[Row]) -> set[tuple[int, Any]]:
    return {(row["pk"], row["s"]) for row in rows if row["s"] is not None}


def told(frame: DataFrame) -> list[Row]:
    """Return the rows of a DataFrame of versions, with their validity in microseconds."""
    times = {name: sf.unix_micros(name) for name in (VALID_FROM, VALID_TO)}
    return rows_of(frame.withColumns(times))


def valid_at(time: int, found: list[Row]) -> list[Row]:
    """Return the rows that were valid at a time."""
    return in_order(
        {name: cell for name, cell in row.items() if name not in VERSION}
        for row in found
        if row[VALID_FROM] <= time and (row[VALID_TO] is None or time < row[VALID_TO])
    )
