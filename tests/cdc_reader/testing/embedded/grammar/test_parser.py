"""Tests that CQL text is parsed to the right statement, or to an error with its position."""

import contextlib
import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.testing.embedded.errors import InvalidSyntax as CqlSyntaxError
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.grammar.parser import build_parser, parse
from cdc_reader.testing.embedded.grammar.selectors import ColumnSelector
from cdc_reader.testing.embedded.grammar.terms import (
    CallTerm,
    Constant,
    ConstantKind,
    ListTerm,
    MapTerm,
    Marker,
    Null,
    SetTerm,
    TupleTerm,
    UserTypeTerm,
)

DATA = Path(__file__).parents[4] / "data"
ONE = Constant(ConstantKind.INTEGER, "1")
T = ast.TableName(None, "t")


def value_of(term: str) -> object:
    """Parse a term as the value of an INSERT."""
    statement = parse(f"INSERT INTO t (a) VALUES ({term})")
    assert isinstance(statement, ast.Insert)
    return statement.values[0]


def test_every_recorded_statement_is_understood() -> None:
    """All statements of the recorded scenarios are parsed."""
    with gzip.open(DATA / "scylla-5.2-scenarios.json.gz", "rt") as file:
        scenarios = json.load(file)["scenarios"]
    for scenario in scenarios:
        operations = [recorded["op"] for recorded in scenario["ops"]]
        texts = [op if isinstance(op, str) else op.get("cql") or op["prepare"] for op in operations]
        for text in (*scenario["types"], scenario["table"], *texts):
            parse(re.sub(r"\{T(\+\d+)?\}", "1", text).replace("{ks}", "ks"))


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("'it''s'", ConstantKind.STRING, "it's"),
        ("$$it's$$", ConstantKind.STRING, "it's"),
        ("-12", ConstantKind.INTEGER, "-12"),
        ("1.5e3", ConstantKind.FLOAT, "1.5e3"),
        ("-Infinity", ConstantKind.FLOAT, "-Infinity"),
        ("NaN", ConstantKind.FLOAT, "NaN"),
        ("0xDEad", ConstantKind.HEX, "0xDEad"),
        ("0x", ConstantKind.HEX, "0x"),
        ("TRUE", ConstantKind.BOOLEAN, "true"),
        ("1h30m", ConstantKind.DURATION, "1h30m"),
        ("P1Y2M", ConstantKind.DURATION, "P1Y2M"),
        (
            "123E4567-e89b-12d3-a456-426614174000",
            ConstantKind.UUID,
            "123e4567-e89b-12d3-a456-426614174000",
        ),
    ],
)
def test_constants_are_classified_by_their_form(text: str, kind: ConstantKind, value: str) -> None:
    """Each constant is parsed to its kind and normalized text.

    The text has no quotes. Booleans and UUIDs are in lower case.
    """
    assert value_of(text) == Constant(kind, value)


def test_collections_nest() -> None:
    """Lists, sets, maps, tuples, UDTs and function calls can be nested in each other."""
    assert value_of("[{1}, {1: null}, (1, {f: 1}), {}, now()]") == ListTerm(
        (
            SetTerm((ONE,)),
            MapTerm(((ONE, Null()),)),
            TupleTerm((ONE, UserTypeTerm((("f", ONE),)))),
            SetTerm(()),
            CallTerm("now", ()),
        )
    )


def test_markers_are_numbered_in_order_of_the_text() -> None:
    """In an UPDATE, USING comes before SET, so the markers of USING have lower numbers."""
    update = parse("UPDATE t USING TTL ? SET a = :a WHERE pk = ? IF b = ?")
    assert isinstance(update, ast.Update)
    assert update.using.ttl == Marker(0)
    assert update.assignments[0].value == Marker(1, "a")
    assert [relation.value for relation in update.where] == [Marker(2)]
    assert update.conditions[0].value == Marker(3)


def test_names_fold_unless_quoted() -> None:
    """Unquoted names become lower case. Quoted names keep their case, and ``""`` is one quote."""
    assert parse('SELECT PK, "Pk", "a""b" FROM Ks.T') == ast.Select(
        ast.TableName("ks", "t"),
        tuple(ast.Selected(ColumnSelector(name)) for name in ("pk", "Pk", 'a"b')),
    )


@pytest.mark.parametrize(
    "name",
    "ascii counter desc distinct exists json key keyspaces list map static text time timestamp "
    "ttl type users uuid values writetime".split(),
)
def test_unreserved_words_are_names(name: str) -> None:
    """Columns may have the names of keywords that are not reserved."""
    create = parse(f"CREATE TABLE t ({name} int PRIMARY KEY)")
    assert isinstance(create, ast.CreateTable)
    assert create.primary_keys == (ast.PrimaryKey((name,)),)
    for text in (
        f"SELECT {name} FROM t WHERE {name} = 1",
        f"INSERT INTO t ({name}) VALUES (1)",
        f"UPDATE t SET {name} = 1 WHERE {name} = 1",
    ):
        parse(text)


def test_comments_are_skipped() -> None:
    """Both kinds of line comments, and block comments, count as white space."""
    assert parse("SELECT * -- all\nFROM // of\n/* the\n table */ t;") == ast.Select(T)


def test_statements_of_log_readers_are_parsed() -> None:
    """A query with the clauses that log readers use is parsed."""
    select = parse(
        'SELECT * FROM ks.log WHERE "cdc$stream_id" IN (?, ?) AND "cdc$time" >= minTimeuuid(?) '
        "PER PARTITION LIMIT 1 LIMIT 2 ALLOW FILTERING BYPASS CACHE"
    )
    assert select == ast.Select(
        ast.TableName("ks", "log"),
        where=(
            ast.Relation("cdc$stream_id", "IN", TupleTerm((Marker(0), Marker(1)))),
            ast.Relation("cdc$time", ">=", CallTerm("mintimeuuid", (Marker(2),))),
        ),
        per_partition_limit=ONE,
        limit=Constant(ConstantKind.INTEGER, "2"),
        allow_filtering=True,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELEC * FROM t", "line 1:0 no viable alternative at input 'SELEC'"),
        ("SELECT * FROM t WHERE pk = ", "line 1:0 no viable alternative at input '<EOF>'"),
        ("SELECT *\n FROM t WHERE a ~ 1", "line 2:16 no viable alternative at input '~'"),
        ("", "line 1:0 no viable alternative at input '<EOF>'"),
        ("SELECT a, token FROM t", "line 1:16 no viable alternative at input 'FROM'"),
        ("SELECT token(a), f('x') FROM t", "line 1:18 no viable alternative at input '('"),
        (
            "UPDATE t SET a = b + 1 WHERE pk = 1",
            ("Only expressions of the form a = a +<value> are supported."),
        ),
    ],
)
def test_a_syntax_error_points_at_its_place(text: str, message: str) -> None:
    """The error counts lines from 1 and columns from 0, as ScyllaDB does."""
    with pytest.raises(CqlSyntaxError) as caught:
        parse(text)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("CREATE INDEX ON t (a)", "CREATE INDEX"),
        ("create custom  index i on t (a)", "CREATE CUSTOM INDEX"),
        ("LIST ROLES", "LIST"),
        ("SELECT a FROM t GROUP BY a", "SELECT ... GROUP BY"),
    ],
)
def test_unsupported_statements_are_named(text: str, what: str) -> None:
    """CQL statements that the server does not support are recognized by name."""
    assert parse(text) == ast.Unsupported(what)


@given(st.text(alphabet="SELECTFROMtwhere*'\"(){}[]=<>,.:;?$-/ 0123456789x\n", max_size=60))
def test_any_text_is_a_statement_or_a_syntax_error(text: str) -> None:
    """The parser raises no error other than InvalidSyntax."""
    with contextlib.suppress(CqlSyntaxError):
        parse(text)


@given(st.text(max_size=30))
def test_any_string_survives_quoting(text: str) -> None:
    """Any text in quotes, with its quotes doubled, is parsed to the same text."""
    quoted = "'" + text.replace("'", "''") + "'"
    assert value_of(quoted) == Constant(ConstantKind.STRING, text)


@pytest.mark.slow
def test_the_parser_s_tables_are_kept_for_later_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged cache file is replaced, and an unusable cache directory causes no error."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cql = "SELECT a.b, count(*) FROM ks.t WHERE p IN (1, ?) AND c > :c"
    expected = build_parser().parse(cql)
    build = build_parser.__wrapped__
    assert build().parse(cql) == expected
    (kept,) = (tmp_path / "scylla-cdc").iterdir()
    assert build().parse(cql) == expected
    kept.write_bytes(kept.read_bytes()[:1000])
    assert build().parse(cql) == expected
    assert kept.stat().st_size > 1000
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept))
    assert build().parse(cql) == expected
