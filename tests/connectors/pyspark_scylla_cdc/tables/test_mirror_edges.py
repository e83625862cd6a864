"""Copies of tables with unusual keys and types, and of tables whose types or keys change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from cdc_reader._time import SystemClock
from cdc_reader.errors import ConfigurationError, SchemaError
from pyspark_scylla_cdc import Mirror
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.tables.layout import IS_CURRENT
from tests.connectors.pyspark_scylla_cdc.support.copied_rows import await_rows
from tests.connectors.pyspark_scylla_cdc.tables.test_fold import rows_of, table_of

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Start = Callable[..., Mirror]
ENABLED = "WITH cdc = {'enabled': true, 'postimage': true}"
KEYS = {
    "uuid": ("11111111-1111-4111-8111-111111111111", "22222222-2222-1222-8222-222222222222"),
    "inet": ("'10.0.0.1'", "'::1'"),
    "frozen<tuple<int, text>>": ("(1, 'a')", "(1, 'b')"),
    "frozen<list<int>>": ("[1]", "[1, 2]"),
    "frozen<set<text>>": ("{'a'}", "{'a', 'b'}"),
}


@pytest.mark.nightly
def test_clustering_keys_of_many_types(
    scylla: Scylla, keyspace: str, execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """Rows are added, updated and deleted by their whole keys, beside a static map."""
    names = [f"k{number}" for number in range(len(KEYS))]
    key = ", ".join(names)
    low, high = (list(cells) for cells in zip(*KEYS.values(), strict=True))
    keys = low, high, [*low[:-1], high[-1]]

    def where(cells: list[str]) -> str:
        return " AND ".join(f"{name} = {cell}" for name, cell in zip(names, cells, strict=True))

    declared = ", ".join(f"{name} {kind}" for name, kind in zip(names, KEYS, strict=True))
    execute(
        f"CREATE TABLE {{t}} (pk int, {declared}, s map<text, int> static, v int, "
        f"PRIMARY KEY (pk, {key})) {ENABLED}",
        *(
            f"INSERT INTO {{t}} (pk, {key}, v) VALUES ({pk}, {', '.join(cells)}, 1)"
            for pk in range(3)
            for cells in keys
        ),
        *(f"UPDATE {{t}} SET s = {{'a': {pk}}} WHERE pk = {pk}" for pk in range(4)),
    )
    assert start(**place).awaitTermination()
    execute(
        f"UPDATE {{t}} SET v = 2 WHERE pk = 0 AND {where(low)}",
        f"DELETE FROM {{t}} WHERE pk = 0 AND {where(high)}",
        "UPDATE {t} SET s['b'] = 2 WHERE pk = 1",
        "DELETE FROM {t} WHERE pk = 2",
    )
    copy = start(**place)
    assert copy.awaitTermination()
    found = rows_of(copy.read())
    assert plain(found) == plain(table_of(scylla, f"{keyspace}.t"))
    assert len(found) == 6


@pytest.mark.nightly
@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_a_path_with_other_characters(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """The path of a copy may contain spaces, and characters that are not ASCII."""
    place["target"] += " of ü #1"
    execute(f"CREATE TABLE {{t}} (pk int PRIMARY KEY) {ENABLED}")
    for pk in range(3):
        execute(f"INSERT INTO {{t}} (pk) VALUES ({pk})")
        copy = start(**place)
        assert copy.awaitTermination()
        assert rows_of(copy.read()) == [{"pk": each} for each in range(pk + 1)]


def plain(rows: list[dict[str, Any]]) -> list[str]:
    """Return the rows in a form that does not distinguish tuples, structs and lists."""
    return sorted(str([list_of(cell) for cell in row.values()]) for row in rows)


def list_of(cell: Any) -> Any:
    """Convert a struct or a tuple to a list."""
    if isinstance(cell, dict) and set(cell) == {"_1", "_2"}:
        return list(cell.values())
    return list(cell) if isinstance(cell, tuple) else cell


@pytest.mark.slow
@pytest.mark.parametrize(("name", "history"), [("pk", False), ("ck", True)])
def test_a_renamed_key_ends_the_copy(
    execute: Execute, start: Start, place: dict[str, str], name: str, history: bool
) -> None:
    """No row of the copy has the new key, so the copy is left unchanged."""
    execute(
        f"CREATE TABLE {{t}} (pk int, ck int, v int, PRIMARY KEY (pk, ck)) {ENABLED}",
        "INSERT INTO {t} (pk, ck, v) VALUES (1, 1, 1)",
    )
    copy = start(**place, history=history)
    assert copy.awaitTermination()
    before = rows_of(copy.read())
    new = {"pk": "pk", "ck": "ck", name: "new"}
    execute(
        f"ALTER TABLE {{t}} RENAME {name} TO new",
        f"INSERT INTO {{t}} ({new['pk']}, {new['ck']}, v) VALUES (1, 1, 2)",
    )
    with pytest.raises(SchemaError, match=f"lacks key column new.*{name}.*delete target"):
        start(**place, history=history)
    assert rows_of(copy.read()) == before


@pytest.mark.nightly
def test_a_key_renamed_while_the_copy_runs(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """The query ends because a column was dropped, and does not start again."""
    execute(
        f"CREATE TABLE {{t}} (pk int PRIMARY KEY, v int) {ENABLED}",
        "INSERT INTO {t} (pk, v) VALUES (1, 1)",
    )
    copy = start(**place, trigger={"processingTime": "0 seconds"})
    await_rows(copy, 1)
    execute("ALTER TABLE {t} RENAME pk TO new", "INSERT INTO {t} (new, v) VALUES (1, 2)")
    with pytest.raises(SchemaError, match="lacks key column new"):
        copy.awaitTermination(timeout=240)
    assert rows_of(copy.read()) == [{"pk": 1, "v": 1}]


POINT = "{x: 1, y: 1}"
NEW_POINT = "{x: 1, y: 2, z: 'z'}"
USES = {
    "u": ("frozen<point>", "%s", lambda point: point),
    "n": ("point", "%s", lambda point: point),
    "l": ("frozen<list<frozen<point>>>", "[%s]", lambda point: [point]),
    "m": ("map<text, frozen<point>>", "{'k': %s}", lambda point: {"k": point}),
    "o": ("frozen<outer>", "{p: %s}", lambda point: {"p": point}),
}
"""Columns that use a type: the column's type, a value in CQL, and the value in the copy."""


@pytest.fixture
def uses(
    request: pytest.FixtureRequest, scylla: Scylla, keyspace: str, execute: Execute
) -> list[str]:
    """The columns of `USES` in a new table; the package deltalake cannot change types in maps."""
    found = [name for name in USES if name != "m" or "deltalake" not in request.node.callspec.id]
    scylla.session.execute(f"CREATE TYPE {keyspace}.point (x int, y int)")
    scylla.session.execute(f"CREATE TYPE {keyspace}.outer (p frozen<point>)")
    columns = ", ".join(f"{name} {USES[name][0]}" for name in found)
    execute(f"CREATE TABLE {{t}} (pk int PRIMARY KEY, v int, {columns}) {ENABLED}")
    return found


def insert(uses: list[str], pk: int, point: str) -> str:
    """Return a statement that inserts a row with a point in each of the columns `uses`."""
    cells = ", ".join(USES[name][1] % point for name in uses)
    return f"INSERT INTO {{t}} (pk, v, {', '.join(uses)}) VALUES ({pk}, 1, {cells})"


def points(uses: list[str], rows: list[dict[str, Any]]) -> dict[int, Any]:
    """Return the points of each row, by key. All columns of a row must have the same point."""
    found = {row["pk"]: row["u"] for row in rows}
    for row in rows:
        assert {name: row[name] for name in uses} == {
            name: USES[name][2](row["u"]) for name in uses
        }
    return found


@pytest.mark.slow
@pytest.mark.parametrize("history", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_new_fields_of_a_type_come_along(
    scylla: Scylla,
    keyspace: str,
    execute: Execute,
    start: Start,
    place: dict[str, str],
    uses: list[str],
    history: bool,
) -> None:
    """A copy gets the fields that are added to a type, wherever the type is used."""
    execute(*(insert(uses, pk, POINT) for pk in (1, 2, 3)))
    assert start(**place, history=history).awaitTermination()
    scylla.session.execute(f"ALTER TYPE {keyspace}.point ADD z text")
    execute(*(insert(uses, pk, NEW_POINT) for pk in (2, 4)), "UPDATE {t} SET v = 3 WHERE pk = 3")
    copy = start(**place, history=history)
    assert copy.awaitTermination()
    rows = copy.read()
    old, new = {"x": 1, "y": 1, "z": None}, {"x": 1, "y": 2, "z": "z"}
    current = rows_of(rows.where(IS_CURRENT) if history else rows)
    assert points(uses, current) == {1: old, 2: new, 3: old, 4: new}
    assert {row["pk"]: row["v"] for row in current} == {1: 1, 2: 1, 3: 3, 4: 1}
    assert rows.count() == (6 if history else 4)


@pytest.mark.nightly
def test_new_fields_while_the_copy_runs(
    scylla: Scylla,
    keyspace: str,
    execute: Execute,
    start: Start,
    place: dict[str, str],
    uses: list[str],
) -> None:
    """A query that runs while a type gains a field gets the field, too."""
    execute(insert(uses, 1, POINT))
    copy = start(**place, trigger={"processingTime": "0 seconds"})
    await_rows(copy, 1)
    scylla.session.execute(f"ALTER TYPE {keyspace}.point ADD z text")
    execute(insert(uses, 2, NEW_POINT))
    await_rows(copy, 2)
    copy.stop()
    old, new = {"x": 1, "y": 1, "z": None}, {"x": 1, "y": 2, "z": "z"}
    assert points(uses, rows_of(copy.read())) == {1: old, 2: new}


@pytest.mark.nightly
@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_a_renamed_field_ends_the_copy(
    scylla: Scylla,
    keyspace: str,
    execute: Execute,
    start: Start,
    place: dict[str, str],
    uses: list[str],
) -> None:
    """The copy's values are under the old name, so the copy is left unchanged."""
    execute(insert(uses, 1, POINT))
    copy = start(**place)
    assert copy.awaitTermination()
    before = rows_of(copy.read())
    scylla.session.execute(f"ALTER TYPE {keyspace}.point RENAME y TO z")
    execute(insert(uses, 1, "{x: 1, z: 2}"))
    with pytest.raises(SchemaError, match=r"has the field l\.element\.y, which .* was renamed"):
        start(**place)
    assert rows_of(copy.read()) == before


@pytest.mark.slow
def test_a_changed_type_ends_the_copy(
    execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """The target cannot hold values of the new type, so the copy is left unchanged."""
    execute(
        f"CREATE TABLE {{t}} (pk int PRIMARY KEY, v int) {ENABLED}",
        "INSERT INTO {t} (pk, v) VALUES (1, 1)",
    )
    copy = start(**place, trigger={"processingTime": "0 seconds"})
    await_rows(copy, 1)
    execute(
        "ALTER TABLE {t} ALTER v TYPE varint", f"INSERT INTO {{t}} (pk, v) VALUES (2, {1 << 70})"
    )
    with pytest.raises(SchemaError, match=r"has v of type int, and .* of type string: delete"):
        copy.awaitTermination(timeout=240)
    assert rows_of(copy.read()) == [{"pk": 1, "v": 1}]


TYPES = {
    "a": ("ascii", "'a'"),
    "b": ("bigint", "1"),
    "c": ("blob", "0x01"),
    "d": ("boolean", "true"),
    "e": ("date", "'2024-02-29'"),
    "f": ("decimal", "1.5"),
    "g": ("double", "1.5"),
    "h": ("duration", "1mo2d3h"),
    "i": ("float", "1.5"),
    "j": ("inet", "'10.0.0.1'"),
    "k": ("smallint", "1"),
    "l": ("time", "'01:02:03'"),
    "m": ("timestamp", "'2024-02-29T01:02:03Z'"),
    "n": ("timeuuid", "now()"),
    "o": ("tinyint", "1"),
    "p": ("varint", "1"),
    "q": ("frozen<list<tinyint>>", "[1]"),
    "r": ("frozen<map<smallint, tinyint>>", "{1: 1}"),
    "s": ("frozen<tuple<tinyint, text, timestamp>>", "(1, 'a', '2024-02-29')"),
    "t": ("vector<float, 2>", "[1.5, 2.5]"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("numbers", ["string", "decimal(20, 2)"])
def test_a_copy_of_each_type_goes_on(
    execute: Execute, start: Start, place: dict[str, str], numbers: str
) -> None:
    """A target may have wider types than the table, such as Iceberg, which has no tinyint."""
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    cells = ", ".join(cell for _, cell in TYPES.values())
    insert = f"INSERT INTO {{t}} (pk, {', '.join(TYPES)}) VALUES"
    execute(f"CREATE TABLE {{t}} (pk int PRIMARY KEY, {columns}) {ENABLED}")
    execute(f"{insert} (1, {cells})", f"{insert} (2, {cells})")
    assert start({"decimalType": numbers}, **place).awaitTermination()
    execute("UPDATE {t} SET b = 2 WHERE pk = 1", f"{insert} (3, {cells})")
    copy = start({"decimalType": numbers}, **place)
    assert copy.awaitTermination()
    found = {row["pk"]: row for row in rows_of(copy.read().drop("n"))}
    assert found[1] == {**found[2], "pk": 1, "b": 2}
    assert found[3] == {**found[2], "pk": 3}
    assert None not in found[2].values()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_new_fields_in_maps_need_delta_lake(
    scylla: Scylla, keyspace: str, execute: Execute, start: Start, place: dict[str, str]
) -> None:
    """The package deltalake cannot add fields inside maps, so the copy is left unchanged."""
    scylla.session.execute(f"CREATE TYPE {keyspace}.point (x int, y int)")
    execute(
        f"CREATE TABLE {{t}} (pk int PRIMARY KEY, m map<text, frozen<point>>) {ENABLED}",
        f"INSERT INTO {{t}} (pk, m) VALUES (1, {{'k': {POINT}}})",
    )
    copy = start(**place)
    assert copy.awaitTermination()
    scylla.session.execute(f"ALTER TYPE {keyspace}.point ADD z text")
    with pytest.raises(SchemaError, match=r"lacks the field m\.value\.z, .* inside a map"):
        start(**place)
    assert rows_of(copy.read()) == [{"pk": 1, "m": {"k": {"x": 1, "y": 1}}}]


@pytest.mark.parametrize("history", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_late_rows_come_from_the_table(
    execute: Execute, start: Start, place: dict[str, str], history: bool
) -> None:
    """A backfill with old timestamps: late values lose against newer ones, and others arrive."""
    execute(
        "CREATE TABLE {t} (pk text, day date, s int static, v int, PRIMARY KEY ((pk, day), v)) "
        "WITH cdc = {'enabled': true}",
        *(f"INSERT INTO {{t}} (pk, day, v) VALUES ('p', '2026-01-0{n}', {n})" for n in (1, 2, 3)),
        "UPDATE {t} SET s = 5 WHERE pk = 'p' AND day = '2026-01-01'",
    )
    source, before = {"lateRows": "Deliver"}, SystemClock().now()
    assert start(source, **place, history=history).awaitTermination()
    late = f"USING TIMESTAMP {before}"
    execute(
        f"UPDATE {{t}} {late} SET s = 6 WHERE pk = 'p' AND day = '2026-01-01'",
        f"DELETE FROM {{t}} {late} WHERE pk = 'p' AND day = '2026-01-02'",
        f"INSERT INTO {{t}} (pk, day, v) VALUES ('p', '2026-01-03', 4) {late}",
        f"INSERT INTO {{t}} (pk, day, v, s) VALUES ('late', '2026-01-01', 7, 7) {late}",
        f"UPDATE {{t}} {late} SET s = 1 WHERE pk = 'q' AND day = '2026-01-01'",
        "UPDATE {t} SET s = 2 WHERE pk = 'q' AND day = '2026-01-01'",
    )
    copy = start(source, **place, history=history)
    assert copy.awaitTermination()
    now = copy.read().where(IS_CURRENT) if history else copy.read()
    found = {(row["pk"], row["day"].day, row["v"]): row["s"] for row in rows_of(now)}
    assert found == {
        ("p", 1, 1): 6,
        ("p", 3, 3): None,
        ("p", 3, 4): None,
        ("late", 1, 7): 7,
        ("q", 1, None): 2,
    }
    assert copy.compare().is_equal


@pytest.mark.parametrize(
    "given", [{"format": "log"}, {"rangeDeletes": "skip"}, {"includeDelta": "false"}]
)
def test_rereading_needs_the_whole_change(given: dict[str, str]) -> None:
    """Without deletes of partitions, the rows that a partition has lost would remain."""
    whole = {"format": "changes", "includeDelta": "true", "rangeDeletes": "emit"}
    options = {"hosts": "localhost", "keyspace": "ks", "table": "t", "lateRows": "reread", **whole}
    assert SourceOptions.parse(options).rereads_late_rows
    with pytest.raises(ConfigurationError, match=r"lateRows is 'reread': .*rangeDeletes 'emit'"):
        SourceOptions.parse({**options, "includeDelta": "false", **given})
