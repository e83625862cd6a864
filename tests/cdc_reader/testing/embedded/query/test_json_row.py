"""Tests that INSERT JSON accepts and rejects the same texts as ScyllaDB."""

import json
from typing import Any

import pytest

from cdc_reader.testing.embedded.query.model import UNSET

SERVER_ERROR, INVALID = 0x0000, 0x2200
OTHER = "d2177dd0-eaa2-11de-a572-001b779c76e3"


@pytest.fixture
def table(shell: Any) -> Any:
    """A table with every kind of column."""
    shell.run('CREATE TYPE u (x int, "Y" text)')
    shell.run(
        "CREATE TABLE t (pk int, ck text, a ascii, b bigint, bl blob, bo boolean, da date, "
        "de decimal, d double, du duration, f float, i inet, l list<int>, m map<text, int>, "
        "mt map<frozen<list<int>>, text>, n map<int, text>, s set<text>, sm smallint, st int "
        "static, t time, ti tinyint, ts timestamp, tt tuple<int, text>, tu timeuuid, ud u, "
        'uf frozen<list<u>>, uu uuid, v varint, "Name" int, PRIMARY KEY (pk, ck))'
    )
    return shell


def insert(shell: Any, more: str = "", **values: Any) -> None:
    """Insert a row as JSON, with the given columns in addition to the key."""
    shell.run(f"INSERT INTO t JSON ?{more}", json.dumps({"pk": 1, "ck": "c", **values}).encode())


def read(shell: Any, column: str) -> Any:
    """Return a column of the only row, decoded from JSON."""
    (text,) = shell.rows(f"SELECT JSON {column} FROM t")[0]
    return next(iter(json.loads(text).values()))


@pytest.mark.parametrize(
    ("column", "given", "stored"),
    [
        ("a", "abc", "abc"),
        ("b", -(1 << 63), -(1 << 63)),
        ("b", "12", 12),
        ("b", 1.5e3, 1500),
        ("bl", "0xDEad", "0xdead"),
        ("bl", "0x", "0x"),
        ("bo", True, True),
        ("bo", " FALSE ", False),
        ("da", "1970-01-02", "1970-01-02"),
        ("de", 1.23, 1.23),
        ("de", "100.00", 100.0),
        ("d", 3, 3.0),
        ("d", "1e3", 1000.0),
        ("f", 0.5, 0.5),
        ("i", "127.0.0.1", "127.0.0.1"),
        ("l", [3, "1", 3], [3, 1, 3]),
        ("m", {"b": 1, "a": 2}, {"a": 2, "b": 1}),
        ("mt", {"[1, 2]": "x"}, {"[1, 2]": "x"}),
        ("n", {"3": "c", "-1": "a"}, {"-1": "a", "3": "c"}),
        ("s", ["b", "a", "b"], ["a", "b"]),
        ("sm", 7, 7),
        ("t", "00:00:00.000000001", "00:00:00.000000001"),
        ("ti", -128, -128),
        ("ts", 134, "1970-01-01T00:00:00.134Z"),
        ("ts", "1970-01-01 00:00:00.134+0000", "1970-01-01T00:00:00.134Z"),
        ("tt", [1, "x"], [1, "x"]),
        ("tt", [1], [1]),
        ("tu", OTHER, OTHER),
        ("ud", {"x": 1, "Y": "y"}, {"x": 1, "Y": "y"}),
        ("ud", {"Y": "y"}, {"x": None, "Y": "y"}),
        ("uf", [{"x": 1}, {}], [{"x": 1, "Y": None}, {"x": None, "Y": None}]),
        ("uu", OTHER, OTHER),
        ("v", 1 << 63, 1 << 63),
        ("v", "-100000000000000000000", -(10**20)),
    ],
)
def test_a_value_of_each_type(table: Any, column: str, given: Any, stored: Any) -> None:
    """INSERT JSON accepts a value of each type, and SELECT JSON returns it."""
    insert(table, **{column: given})
    assert read(table, column) == stored


@pytest.mark.parametrize("text", ["'{}'", "$${}$$"])
def test_names_fold_to_lower_case_unless_quoted(table: Any, text: str) -> None:
    """Names become lower case unless they are quoted within the JSON string, as in CQL."""
    table.run("INSERT INTO t JSON " + text.format('{"PK": 1, "Ck": "c", "\\"Name\\"": 3}'))
    assert table.ints('SELECT "Name" FROM t') == [(3,)]


def test_what_is_left_out_is_null(table: Any) -> None:
    """Columns missing from the text become null, with or without DEFAULT NULL."""
    for default in ("", " DEFAULT NULL"):
        insert(table, b=1, l=[1], ud={"x": 1})
        insert(table, default, sm=1)
        assert table.rows("SELECT b, l, ud FROM t") == [(None, None, None)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"b": "x"}', "Invalid number format 'x'"),
        ('{"b": " 1"}', "Invalid number format ' 1'"),
        ('{"b": true}', "Incorrect JSON value for int64 type: true"),
        ('{"sm": 40000}', "Value 40000 out of range"),
        (
            '{"b": 12.5}',
            (
                "Incorrect JSON floating-point value for int64 type: 12.5 "
                "(it should not contain fractional part 0.5)"
            ),
        ),
        ('{"bl": "dead"}', "Blob JSON strings must start with 0x"),
        (
            '{"i": 87654321}',
            "inet_addr_type must be represented as string in JSON, instead got '87654321'",
        ),
        ('{"bo": 1}', "Invalid JSON object 1"),
        ('{"l": {}}', "list_type must be represented as JSON Array"),
        ('{"m": []}', "map_type must be represented as JSON Object"),
        ('{"l": [null]}', "Incorrect JSON value for int64 type: null"),
        ('{"tt": [1, "x", 2]}', "Too many values (3) for tuple with size 2"),
        ('{"ud": {"z": 1}}', "Extraneous field definition for user type u: z"),
        ('{"uu": "{1-2}"}', "Cannot parse uuid from '{1-2}'"),
    ],
)
def test_a_value_that_is_none_of_its_type_is_a_server_error(
    table: Any, text: str, message: str
) -> None:
    """A value that is invalid for its column's type causes a server error, as in ScyllaDB."""
    code, found = table.refusal("INSERT INTO t JSON ?", text.encode())
    assert (code, found) == (SERVER_ERROR, f"marshaling error: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{pk: 1}", "Missing a name for object member. at 1"),
        ('{"b": NaN}', "Invalid value. at 6"),
        ('{"b": 1 "l"}', "Missing a comma or } after an object member. at 8"),
        ('{"l": [1 2]}', "Missing a comma or ] after an array element. at 9"),
        ('{"b": 1} 2', "The document root must not be followed by other values. at 9"),
        (" ", "The document is empty. at 1"),
        ('{"\\ud800": 1}', "The surrogate pair in string is invalid. at 0"),
    ],
)
def test_malformed_json_is_a_server_error(table: Any, text: str, message: str) -> None:
    """Malformed JSON causes an error with the message of ScyllaDB's JSON library."""
    code, found = table.refusal("INSERT INTO t JSON ?", text.encode())
    assert (code, found) == (SERVER_ERROR, f"Parsing JSON failed: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "JSON assert failed on condition 'IsObject()'"),
        ('{"a": 3}', "JSON assert failed on condition 'IsString()'"),
        ("[" * 5000, "Max nested level reached: 78"),
    ],
)
def test_json_of_the_wrong_shape_is_a_server_error(table: Any, text: str, message: str) -> None:
    """The text must be an object with values of the right kind, and its nesting is limited."""
    assert table.refusal("INSERT INTO t JSON ?", text.encode()) == (SERVER_ERROR, message)


def test_neither_null_nor_unset_is_a_row(table: Any) -> None:
    """A bound text that is null or unset is rejected."""
    assert table.refusal("INSERT INTO t JSON ?", None)[0] == INVALID
    assert table.refusal("INSERT INTO t JSON ?", UNSET)[0] == INVALID
