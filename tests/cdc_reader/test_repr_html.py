"""The tables that notebooks show for readers, schemas and changes."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from cdc_reader import CdcReader, ConnectionConfig

if TYPE_CHECKING:
    from tests.cdc_reader.conftest import Execute


class Table(HTMLParser):
    """A parser of HTML tables that fails on wrong nesting or unexpected elements."""

    KNOWN = ("table", "caption", "thead", "tbody", "tr", "th", "td")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.caption = ""
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in self.KNOWN
        assert all(name == "scope" for name, _ in attrs)
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1] == "caption":
            self.caption += data
        else:
            self.rows[-1][-1] += data


def test_a_reader_shows_its_tables_without_a_query() -> None:
    """A reader is shown without a query. Its schemas appear only after they have been read."""
    way = ConnectionConfig("localhost:1", username="me", password="s3cret")
    shown = CdcReader(way, "shop.orders", "shop.items")._repr_html_()
    assert "s3cret" not in shown
    table = Table(shown)
    assert table.caption == "CdcReader at localhost:1"
    assert table.rows == [
        ["table", "key", "other columns", "log"],
        ["shop.orders", "not read yet", "", ""],
        ["shop.items", "not read yet", "", ""],
    ]


def test_schemas_and_changes_are_tables(
    connection: ConnectionConfig, keyspace: str, execute: Execute
) -> None:
    """Schemas show the columns, with types and kinds. Changes show deltas and images.

    Text is escaped.
    """
    execute(
        "CREATE TABLE {t} (p int, q int, c text, v text, w map<int, text>, PRIMARY KEY ((p, q), c))"
        " WITH CLUSTERING ORDER BY (c DESC)"
        " AND cdc = {'enabled': true, 'preimage': 'full', 'postimage': true, 'ttl': 3600}",
        "INSERT INTO {t} (p, q, c, v) VALUES (1, 2, 'c', '<b>&')",
        "UPDATE {t} SET v = null, w = {1: 'x'} WHERE p = 1 AND q = 2 AND c = 'c'",
        "DELETE FROM {t} WHERE p = 1 AND q = 2 AND c > 'a'",
    )
    with CdcReader(connection, f"{keyspace}.t") as reader:
        changes = list(reader.changes())
        schema = reader.table.schema
        of_reader = Table(reader._repr_html_())
    options = "CDC on, preimage full, postimage true, TTL 3600 s"
    assert of_reader.rows[1:] == [[f"{keyspace}.t", "(p, q), c", "v, w", options]]
    base = Table(schema.base._repr_html_())
    assert base.caption == f"{keyspace}.t: {options}"
    assert base.rows[1:4] == [
        ["p", "int", "partition key", ""],
        ["q", "int", "partition key", ""],
        ["c", "text", "clustering", "descending"],
    ]
    assert base.rows[5] == ["w", "map<int, text>", "regular", ""]
    log = Table(schema._repr_html_())
    assert log.caption.startswith(f"{schema.name}, the log of {keyspace}.t: CDC on")
    assert ["cdc$time", "timeuuid"] in [row[:2] for row in log.rows]
    insert, update, delete = (Table(change._repr_html_()) for change in changes)
    moment = changes[0].written_at.isoformat().replace("+00:00", "Z")
    assert insert.caption == f"insert {keyspace}.t at {moment}"
    assert insert.rows[0] == ["column", "change", "after"]
    assert ["v", "= '<b>&'", "'<b>&'"] in insert.rows
    assert update.rows[0] == ["column", "change", "before", "after"]
    assert ["c", "'c'", "", ""] in update.rows
    assert ["v", "= null", "'<b>&'", "null"] in update.rows
    assert "range_delete" in delete.caption.replace(" ", "_")
    assert delete.caption.count("'a'") == 1


def test_a_long_value_is_cut(connection: ConnectionConfig, keyspace: str, execute: Execute) -> None:
    """A long value is truncated, so that a notebook stays small."""
    execute(
        "CREATE TABLE {t} (p int PRIMARY KEY, v text) WITH cdc = {'enabled': true}",
        f"INSERT INTO {{t}} (p, v) VALUES (1, '{'x' * 10_000}')",
    )
    with CdcReader(connection, f"{keyspace}.t") as reader:
        [change] = reader.changes()
    [*_, (name, cell)] = Table(change._repr_html_()).rows
    assert name == "v"
    assert len(cell) <= 201
    assert cell.endswith("x…")
