"""`Change` and its parts, tested through their public interface."""

from __future__ import annotations

import copy
import json
import pickle
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from cdc_reader import ConnectionConfig, ReadConfig
from cdc_reader.changes.change import Bound, Change, change_of_rows
from cdc_reader.changes.delta import DELETED, Assigned, CollectionDelta, merge
from cdc_reader.changes.grouping import Grouping
from cdc_reader.changes.operation import ChangeOperation
from cdc_reader.cluster import Connection, Query, SchemaSource
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import CdcOptions, Column
from cdc_reader.cql.types import parse
from cdc_reader.cql.values import Duration, FrozenDict, integer
from cdc_reader.streams.stream import StreamId
from tests.cdc_reader.support.recorded_logs import BASE, KEYS, U, histories, log_schema

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

TIME = timeuuid.make(1_700_000_000_000_000, bytes(8))
SCHEMA = log_schema(*BASE)


def change_of(*rows: dict[str, Any], schema: Any = SCHEMA, **facts: bool) -> Change:
    """Return a change made from abbreviated log rows of partition 1."""
    columns = {name for row in rows for name in row} - {"op", "ttl"}
    values = {name: [row.get(name) for row in rows] for name in columns}
    common: dict[str, list[Any]] = {
        "cdc$stream_id": [bytes(16)] * len(rows),
        "cdc$time": [TIME] * len(rows),
        "cdc$batch_seq_no": list(range(len(rows))),
        "cdc$operation": [row["op"] for row in rows],
        "cdc$ttl": [row.get("ttl") for row in rows],
        "pk": [1] * len(rows),
    }
    return change_of_rows(schema, common | values, **facts)


def test_a_change_says_where_and_when_it_was_made() -> None:
    """A change shows its table, stream, key, and write timestamp to the microsecond."""
    change = change_of({"op": 2, "ck": 2, "a": 3})
    assert change.table == TableName("ks", "t")
    assert change.stream == StreamId(bytes(16))
    assert (change.time, change.timestamp) == (TIME, 1_700_000_000_000_000)
    assert change.written_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert (change.key, change.partition_key) == ({"pk": 1, "ck": 2}, {"pk": 1})
    assert (change.operation, change.deltas) == (ChangeOperation.INSERT, {"a": Assigned(3)})
    assert (change.seqs, change.is_last, change.complete) == ((0,), True, True)


def test_unchanged_null_and_unrecorded_columns_differ() -> None:
    """Deltas and images distinguish unchanged, null and unrecorded columns."""
    change = change_of(
        {"op": 0, "ck": 2, "a": 1, "cdc$deleted_b": True},
        {"op": 1, "ck": 2, "cdc$deleted_a": True},
        {"op": 9, "ck": 2, "b": "x"},
    )
    assert change.deltas == {"a": DELETED}
    assert change.before == {"a": 1, "b": None}
    assert change.after is not None
    assert set(change.after) == {"a", "b", "fr", "l", "m", "s", "un"}
    assert {name for name, value in change.after.items() if value is not None} == {"b"}
    plain = change_of({"op": 1, "ck": 2, "cdc$deleted_a": True})
    assert (plain.before, plain.after) == (None, None)


def test_a_log_of_keys_shows_no_deltas() -> None:
    """With a keys-only log, a write's deltas are shown as unknown rather than as unchanged."""
    keys_only = log_schema(*BASE, cdc=CdcOptions(enabled=True, delta_keys_only=True))
    insert, delete, full = (
        change_of({"op": 2, "ck": 1}, schema=keys_only),
        change_of({"op": 3, "ck": 1}, schema=keys_only),
        change_of({"op": 1, "ck": 1, "a": 1}, schema=keys_only),
    )
    assert [c.deltas_shown for c in (insert, delete, full)] == [False, True, True]
    assert change_of({"op": 2, "ck": 1}).deltas_shown
    assert insert.to_dict()["deltas"] is None


def test_rows_split_by_ttl_are_parts_of_one_change() -> None:
    """A change merges log rows with different TTLs. Each of its parts is one of these rows."""
    change = change_of(
        {"op": 2, "ck": 1, "a": 1, "ttl": 5},
        {"op": 1, "ck": 1, "cdc$deleted_m": True, "cdc$deleted_b": True},
        {"op": 1, "ck": 1, "m": FrozenDict({1: "x"}), "ttl": 5},
    )
    assert (change.operation, change.ttl) == (ChangeOperation.INSERT, 5)
    assert change.deltas == {
        "a": Assigned(1),
        "b": DELETED,
        "m": CollectionDelta(True, {1: "x"}, frozenset()),
    }
    assert [(part.operation, part.ttl, dict(part.deltas)) for part in change.parts] == [
        (2, 5, {"a": Assigned(1)}),
        (1, None, {"b": DELETED, "m": DELETED}),
        (1, 5, {"m": CollectionDelta(False, {1: "x"}, frozenset())}),
    ]


def test_a_change_with_several_ttls_has_no_single_ttl() -> None:
    """The `ttl` of a change with several TTLs is None, but each part has its own TTL."""
    change = change_of({"op": 1, "ck": 1, "a": 1, "ttl": 5}, {"op": 1, "ck": 1, "b": "x"})
    assert change.ttl is None
    assert [part.ttl for part in change.parts] == [5, None]


def test_a_change_with_nan_equals_itself() -> None:
    """A change equals itself even if it contains NaN, which does not equal itself."""
    schema = log_schema(*KEYS, Column("d", parse("double")))
    change = change_of({"op": 2, "ck": 1, "d": float("nan")}, schema=schema)
    assert change == change  # noqa: PLR0124 - is tested
    assert change != copy.copy(change)


def test_a_change_is_not_subclassed() -> None:
    """`Change` rejects subclasses: their copied or unpickled objects would be plain changes."""
    with pytest.raises(TypeError, match="cannot be subclassed"):
        type("Mine", (Change,), {})


def test_a_write_and_a_delete_of_a_row_are_a_delete() -> None:
    """A write and a delete of one row with the same timestamp form one delete."""
    change = change_of({"op": 1, "ck": 1, "a": 1}, {"op": 3, "ck": 1})
    assert change.operation is ChangeOperation.ROW_DELETE
    assert change.operation.is_delete
    assert change.deltas == {"a": Assigned(1)}


@pytest.mark.parametrize(
    ("cells", "delta"),
    [
        ({"m": {1: "x"}}, CollectionDelta(False, {1: "x"}, frozenset())),
        ({"m": {1: "x"}, "cdc$deleted_m": True}, CollectionDelta(True, {1: "x"}, frozenset())),
        ({"cdc$deleted_elements_m": {1}}, CollectionDelta(False, {}, frozenset([1]))),
        ({"cdc$deleted_m": True}, DELETED),
        ({"un": {"x": 1, "y": None}}, CollectionDelta(False, {"x": 1}, frozenset())),
        (
            {"un": {"x": None, "y": None}, "cdc$deleted_elements_un": {0}},
            CollectionDelta(False, {}, frozenset(["x"])),
        ),
        ({"un": {"x": None, "y": None}, "cdc$deleted_un": True}, DELETED),
        ({"s": frozenset([2])}, CollectionDelta(False, frozenset([2]), frozenset())),
        ({"fr": (), "cdc$deleted_fr": None}, Assigned(())),
    ],
)
def test_collection_deltas(cells: dict[str, Any], delta: Any) -> None:
    """Deltas show added, removed and overwritten elements. A null UDT field counts as unwritten."""
    values = {
        name: FrozenDict(value) if isinstance(value, dict) else value
        for name, value in cells.items()
    }
    change = change_of({"op": 1, "ck": 1, **values})
    assert list(change.deltas.values()) == [delta]


def test_an_empty_collection_in_an_image_is_null() -> None:
    """As in tables, an empty collection in an image is null, unless it is frozen."""
    change = change_of(
        {"op": 1, "ck": 1, "a": 1},
        {"op": 9, "ck": 1, "s": frozenset(), "un": FrozenDict(x=None, y=None), "fr": ()},
    )
    assert change.after is not None
    assert (change.after["s"], change.after["un"], change.after["fr"]) == (None, None, ())


def test_deltas_of_one_write_merge_in_any_order() -> None:
    """The deltas of one write merge in any order, because each changes different elements."""
    overwritten = CollectionDelta(True, {1: "a"}, frozenset())
    added = CollectionDelta(False, {2: "b"}, frozenset([3]))
    both = CollectionDelta(True, {1: "a", 2: "b"}, frozenset([3]))
    assert merge(overwritten, added) == merge(added, overwritten) == both
    assert merge(added, DELETED) == merge(DELETED, added) == attrs.evolve(added, overwritten=True)
    assert (
        merge(None, Assigned(1))
        == merge(Assigned(2), Assigned(1))
        == merge(added, Assigned(1))
        == Assigned(1)
    )
    sets = CollectionDelta(False, frozenset([1])), CollectionDelta(False, frozenset([2]))
    assert merge(*sets) == CollectionDelta(False, frozenset([1, 2]))


def test_deltas_of_both_zeros_are_merged() -> None:
    """Merged deltas keep both 0.0 and -0.0, which are different elements in CQL."""
    for one, other in ((0.0, -0.0), (-0.0, 0.0)):
        sets = (
            CollectionDelta(False, frozenset([each]), frozenset([each])) for each in (one, other)
        )
        maps = (CollectionDelta(False, FrozenDict({each: str(each)})) for each in (one, other))
        both, mapped = merge(*sets), merge(*maps)
        assert isinstance(both, CollectionDelta)
        assert sorted(map(str, both.added)) == sorted(map(str, both.removed)) == ["-0.0", "0.0"]
        assert isinstance(mapped, CollectionDelta)
        assert isinstance(mapped.added, FrozenDict)
        assert {str(key): value for key, value in mapped.added.items()} == {
            "0.0": "0.0",
            "-0.0": "-0.0",
        }


def test_a_static_row_is_a_row_of_its_own() -> None:
    """The key of a static row's change is the partition key."""
    change = change_of({"op": 0, "st": 1}, {"op": 1, "st": 2}, {"op": 9, "st": 2})
    assert change.is_static
    assert (change.key, change.deltas) == ({"pk": 1}, {"st": Assigned(2)})
    assert (change.before, change.after) == ({"st": 1}, {"ss": None, "st": 2})
    assert not change_of({"op": 4}).is_static


def test_a_range_has_two_ends() -> None:
    """Each end of a range is a clustering prefix, or None if its log row is missing.

    The change's key is the partition key.
    """
    change = change_of({"op": 6, "ck": 1}, {"op": 7, "ck": None})
    assert change.operation is ChangeOperation.RANGE_DELETE
    assert change.range is not None
    assert change.range.start == Bound({"ck": 1}, inclusive=False)
    assert change.range.end == Bound({}, inclusive=True)
    assert (change.key, change.deltas, change.is_static) == ({"pk": 1}, {}, False)
    cut = change_of({"op": 5, "ck": 1}, complete=False)
    assert cut.range is not None
    assert cut.range.end is None
    assert change_of({"op": 4}).range is None


def test_a_change_may_be_an_image_alone() -> None:
    """A change with only an image is incomplete, because the rest of its record was not read."""
    change = change_of({"op": 0, "ck": 1, "a": 1}, complete=False)
    assert (change.operation, change.before, change.parts) == ("image", {"a": 1}, ())


def test_changes_are_values() -> None:
    """A change equals its pickled copy and its deep copy, and differs from all other changes."""
    changes: Any = histories()[1].changes()
    again = pickle.loads(pickle.dumps(changes))
    assert again == changes
    assert len({*again, *changes}) == len(changes)
    assert copy.deepcopy(changes[0]) == changes[0]
    assert changes[0] != changes[1]
    assert changes[0] != "a change"
    with pytest.raises(AttributeError):
        changes[0].complete = False
    with pytest.raises(AttributeError):
        changes[0].deltas = {}


def test_a_change_prints_on_a_line() -> None:
    """A change prints on one line, with its operation, table, deltas and time."""
    element = uuid.UUID(int=1)
    change = change_of(
        {
            "op": 1, "ck": 1, "a": 1, "cdc$deleted_b": True, "s": frozenset([1, 2]),
            "cdc$deleted_elements_m": frozenset([3]), "l": FrozenDict({element: 7}),
            "cdc$deleted_l": True, "un": FrozenDict(x=1, y=None),
            "cdc$deleted_elements_un": frozenset([1]),
        }
    )  # fmt: skip
    assert repr(change) == (
        "<update ks.t {'pk': 1, 'ck': 1} a = 1 b = null l = "
        "{UUID('00000000-0000-0000-0000-000000000001'): 7} m - {3} s + {1, 2} un + {'x': 1} "
        "- {'y'} at 2023-11-14T22:13:20Z>"
    )
    assert repr(change_of({"op": 5, "ck": 1}, {"op": 8, "ck": 3})) == (
        "<range_delete ks.t {'pk': 1} from {'ck': 1} inclusive to {'ck': 3} exclusive "
        "at 2023-11-14T22:13:20Z>"
    )


def test_a_change_with_a_number_of_many_digits() -> None:
    """A change can be printed, and written as JSON, whatever the length of its numbers."""
    text = "7" * 5_000
    number = integer(text)
    change = change_of({"op": 2, "ck": number, "a": number, "s": frozenset([number])})
    deltas = f"a = {text} s + {{{text}}}"
    assert repr(change).startswith(f"<insert ks.t {{'pk': 1, 'ck': {text}}} {deltas}")
    found = json.loads(json.dumps(change.to_dict()))
    assert (found["key"]["ck"], found["deltas"]["a"]) == (text, {"set": text})
    assert found["deltas"]["s"]["added"] == [text]


def test_a_change_is_json_as_a_dict() -> None:
    """The result of `to_dict` can be written as JSON, with sets as sorted lists."""
    change = change_of(
        {"op": 2, "ck": 1, "a": 1, "ttl": 5},
        {"op": 1, "ck": 1, "m": FrozenDict({1: "x"}), "cdc$deleted_elements_s": frozenset([2, 1])},
        {"op": 9, "ck": 1, "a": 1},
    )
    found = json.loads(json.dumps(change.to_dict()))
    assert found["deltas"] == {
        "a": {"set": 1},
        "m": {"overwritten": False, "added": {"1": "x"}, "removed": []},
        "s": {"overwritten": False, "added": [], "removed": [1, 2]},
    }
    assert found["operation"] == "insert"
    assert (found["key"], found["before"]) == ({"pk": 1, "ck": 1}, None)
    assert [part["operation"] for part in found["parts"]] == ["insert", "update"]
    ranges = change_of({"op": 5, "ck": 1}, {"op": 8, "ck": 3}).to_dict()["range"]
    assert ranges["end"] == {"prefix": {"ck": 3}, "inclusive": False}


ALL_TYPES: dict[str, tuple[str, Any, Any]] = {
    "ascii": ("'a'", "a", "a"),
    "bigint": ("-5", -5, -5),
    "blob": ("0x00ff", b"\x00\xff", "0x00ff"),
    "boolean": ("true", True, True),
    "date": ("'2024-02-29'", date(2024, 2, 29), "2024-02-29"),
    "decimal": ("1.50", Decimal("1.50"), "1.50"),
    "double": ("NaN", pytest.approx(float("nan"), nan_ok=True), "nan"),
    "duration": ("1mo2d3ns", Duration(1, 2, 3), "1mo2d3ns"),
    "float": ("0.5", 0.5, 0.5),
    "inet": ("'::1'", ip_address("::1"), "::1"),
    "int": ("7", 7, 7),
    "smallint": ("7", 7, 7),
    "text": ("'ü'", "ü", "ü"),
    "time": ("'00:00:01'", 1_000_000_000, 1_000_000_000),
    "timestamp": ("1", datetime(1970, 1, 1, 0, 0, 0, 1000, UTC), "1970-01-01T00:00:00.001000Z"),
    "timeuuid": (str(TIME), TIME, str(TIME)),
    "tinyint": ("-1", -1, -1),
    "uuid": (str(uuid.UUID(int=3)), uuid.UUID(int=3), str(uuid.UUID(int=3))),
    "varint": (str(10**30), 10**30, str(10**30)),
    "frozen<list<int>>": ("[1, 2]", (1, 2), [1, 2]),
    "frozen<set<text>>": ("{'b', 'a'}", frozenset("ab"), ["a", "b"]),
    "frozen<map<int, text>>": ("{1: 'x'}", {1: "x"}, {"1": "x"}),
    "frozen<map<frozen<list<int>>, int>>": ("{[1]: 2}", {(1,): 2}, [[[1], 2]]),
    "frozen<tuple<int, text>>": ("(1, null)", (1, None), [1, None]),
    "frozen<u>": ("{x: 1}", {"x": 1, "y": None}, {"x": 1, "y": None}),
}


def changes_of(connection: ConnectionConfig, table: TableName) -> list[Change]:
    """Return all changes of a table."""
    opened = Connection(connection, ReadConfig())
    try:
        grouping = Grouping(SchemaSource(opened).log_schema(table))
        pages = opened.batches(Query(f"SELECT * FROM {table.log.cql}"))
        return [change for page in pages for change in grouping.feed(page)] + grouping.finish()
    finally:
        opened.close()


def test_values_of_every_type_are_python_values(
    scylla: Scylla, connection: ConnectionConfig, keyspace: str
) -> None:
    """Values of every type, recorded as CQL text, become Python values and are shown as JSON."""
    columns = ", ".join(f"c{at} {cql_type}" for at, cql_type in enumerate(ALL_TYPES))
    scylla.session.execute(f"CREATE TYPE {keyspace}.u (x int, y text)")
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, {columns}) WITH cdc = {{'enabled': true}}"
    )
    names = ", ".join(f"c{at}" for at, _ in enumerate(ALL_TYPES))
    texts = ", ".join(text for text, _, _ in ALL_TYPES.values())
    scylla.session.execute(f"INSERT INTO {keyspace}.t (pk, {names}) VALUES (1, {texts})")
    (change,) = changes_of(connection, TableName(keyspace, "t"))
    found = change.to_dict()["deltas"]
    for at, (cql_type, (_, value, plain)) in enumerate(ALL_TYPES.items()):
        assert change.deltas[f"c{at}"] == Assigned(value), cql_type
        assert found[f"c{at}"] == {"set": plain}, cql_type
    json.dumps(found, allow_nan=False)


def test_an_empty_value_is_read_as_null_but_not_as_a_deletion(
    scylla: Scylla, connection: ConnectionConfig, keyspace: str
) -> None:
    """An empty text or blob is a value. An empty value of any other type reads as null."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, i int, u uuid, t text, b blob, n int) "
        "WITH cdc = {'enabled': true, 'postimage': true}"
    )
    scylla.session.execute(
        f"INSERT INTO {keyspace}.t (pk, i, u, t, b, n) "
        "VALUES (1, blobAsInt(0x), blobAsUuid(0x), '', 0x, null)"
    )
    (change,) = changes_of(connection, TableName(keyspace, "t"))
    assert change.deltas == {"t": Assigned(""), "b": Assigned(b""), "n": DELETED}
    assert change.after == {"i": None, "u": None, "t": "", "b": b"", "n": None}


def test_deleted_fields_unknown_to_the_type_are_named_by_number() -> None:
    """Deleted fields that an older schema lacks are shown by index."""
    schema = log_schema(*KEYS, Column("un", U), Column("v", parse("int")))
    change = change_of(
        {"op": 1, "ck": 1, "cdc$deleted_elements_un": frozenset([1, 7])}, schema=schema
    )
    assert change.deltas == {"un": CollectionDelta(False, {}, frozenset(["y", "[7]"]))}
