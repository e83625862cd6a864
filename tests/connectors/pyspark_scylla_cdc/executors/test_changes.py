"""The format ``changes``: the rows that each statement produces, with and without images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc_reader._time import SystemClock
from cdc_reader.errors import CdcError, ConfigurationError, SchemaError, UnsupportedTableError

Rows = Callable[..., list[dict[str, Any]]]
Execute = Callable[..., None]
FULL = "'preimage': 'full', 'postimage': true"
KEY = ("pk", "ck")


@pytest.fixture
def table(execute: Execute) -> Callable[[str], None]:
    """Create a table with all kinds of columns and these CDC options."""

    def make(images: str) -> None:
        execute(
            "CREATE TABLE {t} (pk int, ck int, s int static, v int, w text, m map<int, text>, "
            f"l list<int>, PRIMARY KEY (pk, ck)) WITH cdc = {{'enabled': true, {images}}}"
        )

    return make


def changes(rows: Rows, *names: str, **options: str) -> list[tuple[Any, ...]]:
    """Return the type of each change and the values of these columns, in commit order."""
    found = rows(format="changes", **options)
    found.sort(key=lambda row: (row["_commit_version"], row["_sequence"]))
    return [tuple(row[name] for name in ("_change_type", *names)) for row in found]


def test_whole_rows(table: Callable[[str], None], execute: Execute, rows: Rows) -> None:
    """With both images, each change contains the row before and after it, as in Delta's feed."""
    table(FULL)
    execute(
        "INSERT INTO {t} (pk, ck, v, w) VALUES (1, 2, 3, 'a')",
        "UPDATE {t} SET v = 4 WHERE pk = 1 AND ck = 2",
        "INSERT INTO {t} (pk, ck, w) VALUES (1, 2, null)",
        "DELETE FROM {t} WHERE pk = 1 AND ck = 2",
        "UPDATE {t} SET v = 5 WHERE pk = 1 AND ck = 2",
    )
    assert changes(rows, *KEY, "v", "w") == [
        ("insert", 1, 2, 3, "a"),
        ("update_preimage", 1, 2, 3, "a"),
        ("update_postimage", 1, 2, 4, "a"),
        ("update_preimage", 1, 2, 4, "a"),
        ("update_postimage", 1, 2, 4, None),
        ("delete", 1, 2, 4, None),
        ("insert", 1, 2, 5, None),
    ]


def test_postimages_alone(table: Callable[[str], None], execute: Execute, rows: Rows) -> None:
    """Without preimages, only INSERT statements count as inserts. Deletes contain only keys."""
    table("'postimage': true")
    execute(
        "UPDATE {t} SET v = 4 WHERE pk = 1 AND ck = 2",
        "INSERT INTO {t} (pk, ck, w) VALUES (1, 2, 'b')",
        "DELETE FROM {t} WHERE pk = 1 AND ck = 2",
    )
    assert changes(rows, *KEY, "v", "w") == [
        ("update_postimage", 1, 2, 4, None),
        ("insert", 1, 2, 4, "b"),
        ("delete", 1, 2, None, None),
    ]


def test_delta_alone(execute: Execute, rows: Rows) -> None:
    """Without images, a row has the written values and the names of modified and nulled columns."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int, w int, f frozen<list<int>>) "
        "WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk, v, w) VALUES (1, 2, null)",
        "UPDATE {t} USING TTL 90 SET v = 4, w = null, f = [] WHERE pk = 1",
        "DELETE FROM {t} WHERE pk = 1",
    )
    found = changes(
        rows, "v", "w", "f", "_modified_columns", "_nulled_columns", includeDelta="true"
    )
    assert found == [
        ("insert", 2, None, None, ["v", "w"], ["w"]),
        ("update_postimage", 4, None, [], ["f", "v", "w"], ["w"]),
        ("delete", None, None, None, None, None),
    ]


def test_delta_beside_images(table: Callable[[str], None], execute: Execute, rows: Rows) -> None:
    """With images, `includeDelta` adds lists of modified and nulled columns to complete rows."""
    table(FULL)
    execute(
        "INSERT INTO {t} (pk, ck, v, m, l) VALUES (1, 2, 3, {1: 'a'}, [5, 6])",
        "UPDATE {t} SET m = m - {1}, w = 'x' WHERE pk = 1 AND ck = 2",
        "UPDATE {t} SET l = null WHERE pk = 1 AND ck = 2",
        "UPDATE {t} SET m[7] = 'b', l = [9] + l WHERE pk = 1 AND ck = 2",
    )
    names = ("v", "w", "m", "l", "_modified_columns", "_nulled_columns")
    found = changes(rows, *names, includeDelta="true", preimages="none")
    assert found == [
        ("insert", 3, None, {1: "a"}, [5, 6], ["l", "m", "v"], []),
        ("update_postimage", 3, "x", None, [5, 6], ["m", "w"], []),
        ("update_postimage", 3, "x", None, None, ["l"], ["l"]),
        ("update_postimage", 3, "x", {7: "b"}, [9], ["l", "m"], []),
    ]


def test_partial_preimages(table: Callable[[str], None], execute: Execute, rows: Rows) -> None:
    """Partial preimages are returned only with `includeDelta`, which lists modified columns."""
    table("'preimage': true, 'postimage': true")
    execute(
        "INSERT INTO {t} (pk, ck, v, w) VALUES (1, 2, 3, 'a')",
        "UPDATE {t} SET v = 4 WHERE pk = 1 AND ck = 2",
        "DELETE FROM {t} WHERE pk = 1 AND ck = 2",
    )
    assert changes(rows, "v", "w") == [
        ("insert", 3, "a"),
        ("update_postimage", 4, "a"),
        ("delete", 4, "a"),
    ]
    assert changes(rows, "v", "w", "_modified_columns", includeDelta="true")[1:3] == [
        ("update_preimage", 3, None, ["v"]),
        ("update_postimage", 4, "a", ["v"]),
    ]


def test_rows_of_one_batch(table: Callable[[str], None], execute: Execute, rows: Rows) -> None:
    """The images of several rows interleave in the log. Each change gets its own images."""
    table(FULL)
    execute(
        "INSERT INTO {t} (pk, ck, v) VALUES (1, 1, 10)",
        "INSERT INTO {t} (pk, ck, v) VALUES (1, 2, 20)",
        "BEGIN BATCH UPDATE {t} SET v = 11 WHERE pk = 1 AND ck = 1; "
        "UPDATE {t} SET v = 21 WHERE pk = 1 AND ck = 2; "
        "DELETE FROM {t} WHERE pk = 1 AND ck = 3; "
        "INSERT INTO {t} (pk, ck, v) VALUES (1, 4, 41); APPLY BATCH",
    )
    assert sorted(changes(rows, "ck", "v")[2:]) == [
        ("delete", 3, None),
        ("insert", 4, 41),
        ("update_postimage", 1, 11),
        ("update_postimage", 2, 21),
        ("update_preimage", 1, 10),
        ("update_preimage", 2, 20),
    ]


def test_written_and_deleted_at_once(
    table: Callable[[str], None], execute: Execute, rows: Rows
) -> None:
    """A record that both writes and deletes a row is a delete, whatever the kind of delete."""
    table(FULL)
    now = SystemClock().now()
    for later, where in enumerate(("pk = 1 AND ck = 1", "pk = 1")):
        execute(
            f"BEGIN BATCH USING TIMESTAMP {now + later} UPDATE {{t}} SET v = 1 WHERE pk = 1 "
            f"AND ck = 1; DELETE FROM {{t}} WHERE {where}; APPLY BATCH"
        )
    assert changes(rows, *KEY, "v", rangeDeletes="emit") == [
        ("delete", 1, 1, None),
        ("delete_partition", 1, None, None),
    ]
    assert len(changes(rows, rangeDeletes="skip")) == 1


def test_static_rows(table: Callable[[str], None], execute: Execute, rows: Rows) -> None:
    """A change of static columns is a separate row without a clustering key."""
    table(FULL)
    execute(
        "INSERT INTO {t} (pk, ck, s, v) VALUES (1, 2, 3, 4)",
        "UPDATE {t} SET s = 5 WHERE pk = 1",
    )
    assert changes(rows, *KEY, "s", "v") == [
        ("update_postimage", 1, None, 3, None),
        ("insert", 1, 2, None, 4),
        ("update_preimage", 1, None, 3, None),
        ("update_postimage", 1, None, 5, None),
    ]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("ck > 1 AND ck <= 5", ({"ck": 1}, False, {"ck": 5}, True)),
        ("ck < 5", ({"ck": None}, True, {"ck": 5}, False)),
        ("ck >= 5", ({"ck": 5}, True, {"ck": None}, True)),
    ],
)
def test_range_deletes(
    table: Callable[[str], None],
    execute: Execute,
    rows: Rows,
    where: str,
    expected: tuple[Any, ...],
) -> None:
    """A range delete ends the query, is returned with bounds, or is skipped (`rangeDeletes`)."""
    table("'postimage': true")
    execute("INSERT INTO {t} (pk, ck) VALUES (1, 2)", f"DELETE FROM {{t}} WHERE pk = 1 AND {where}")
    with pytest.raises(ConfigurationError, match=r"rangeDeletes is 'fail': at .*give 'emit'"):
        changes(rows)
    _, (kind, pk, ck, bounds) = changes(rows, *KEY, "_range", rangeDeletes="emit")
    assert (kind, pk, ck) == ("delete_range", 1, None)
    assert tuple(bounds.values()) == expected
    assert changes(rows, *KEY, rangeDeletes="skip") == [("insert", 1, 2)]


def test_table_without_clustering_key(execute: Execute, rows: Rows) -> None:
    """Without a clustering key, each partition is one row, so deleting it deletes a row."""
    execute(
        f"CREATE TABLE {{t}} (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true, {FULL}}}",
        "INSERT INTO {t} (pk, v) VALUES (1, 2)",
        "DELETE FROM {t} WHERE pk = 1",
    )
    assert changes(rows, "pk") == [("insert", 1), ("delete", 1)]


@pytest.mark.parametrize(
    ("images", "given", "expected"),
    [
        (
            "'ttl': 60",
            {},
            (
                r"no postimages; .*: ALTER TABLE \"\w+\".\"t\" WITH cdc = \{'enabled': 'true', "
                r"'preimage': 'false', 'postimage': 'true', 'delta': 'full', 'ttl': '60'\}$"
            ),
        ),
        (
            "'ttl': 60",
            {"includeDelta": "true"},
            "for l, m the log has only the elements that changed",
        ),
        (
            "'delta': 'keys', 'postimage': true",
            {"includeDelta": "true"},
            "has keys only; .*'postimage': 'true', 'delta': 'full'",
        ),
        (
            "'preimage': true, 'postimage': true",
            {"preimages": "require"},
            "no full preimages; .*'preimage': 'full', 'postimage': 'true'",
        ),
    ],
)
def test_missing_images_are_refused(
    table: Callable[[str], None], rows: Rows, images: str, given: dict[str, str], expected: str
) -> None:
    """The error contains the statement that enables the missing images."""
    table(images)
    with pytest.raises(UnsupportedTableError, match=expected):
        changes(rows, **given)


def test_the_printed_statement_works(
    table: Callable[[str], None], execute: Execute, rows: Rows
) -> None:
    """After the error's statement is run, new changes can be read. Older ones raise an error."""
    table("'ttl': 3600")
    execute("INSERT INTO {t} (pk, ck) VALUES (1, 2)")
    with pytest.raises(UnsupportedTableError) as refused:
        changes(rows)
    found = str(refused.value)
    execute(found[found.index("ALTER") :])
    with pytest.raises(SchemaError, match=r"has no postimage .* give a later startingTimestamp"):
        changes(rows)
    execute("INSERT INTO {t} (pk, ck) VALUES (1, 3)")
    later = max(row["_commit_timestamp"] for row in rows())
    assert changes(rows, "ck", startingTimestamp=later.isoformat()) == [("insert", 3)]


def test_chosen_columns(table: Callable[[str], None], execute: Execute, rows: Rows) -> None:
    """Only the chosen columns and the key are returned."""
    table("'ttl': 3600")
    execute("INSERT INTO {t} (pk, ck, v, m) VALUES (1, 2, 3, {1: 'a'})")
    (row,) = rows(format="changes", columns="v", includeDelta="true")
    assert set(row) - {name for name in row if name.startswith("_")} == {"pk", "ck", "v"}
    assert (row["v"], row["_modified_columns"]) == (3, ["v"])
    with pytest.raises(ConfigurationError, match=r"columns is 'vv': .* did you mean v\?"):
        rows(columns="vv")


def test_a_name_that_is_taken(execute: Execute, rows: Rows) -> None:
    """A base column with the name of an added column is rejected."""
    execute("CREATE TABLE {t} (pk int PRIMARY KEY, \"_sequence\" int) WITH cdc = {'enabled': true}")
    with pytest.raises(CdcError, match="has a column _sequence"):
        changes(rows, includeDelta="true")
