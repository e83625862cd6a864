"""Both kernels create the same Python objects from Arrow columns."""

from __future__ import annotations

import copy
import gc
import pickle
import uuid
import weakref
from types import ModuleType
from typing import Any, Self

import attrs
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.changes.delta import DELETED, CollectionDelta
from cdc_reader.cql.values import FrozenDict
from cdc_reader.decoding.choice import MODULES
from tests.cdc_reader.decoding.conftest import kernel

TYPES = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.list_(pa.int32()): st.lists(st.integers(0, 9)),
    pa.null(): st.none(),
}
"""Types whose values the compiled kernel makes itself, and other types."""


@pytest.fixture(scope="module", params=sorted(MODULES))
def made(request: pytest.FixtureRequest) -> ModuleType:
    """The module of each kernel in turn."""
    return kernel(request.param)


@given(st.data())
def test_values_are_those_of_the_column(made: ModuleType, data: st.DataObject) -> None:
    """The values equal the values of the column, for any slice and any number of nulls."""
    kind = data.draw(st.sampled_from(list(TYPES)))
    cells = data.draw(st.lists(st.none() | TYPES[kind], max_size=20))
    column = pa.array(cells, kind)
    start = data.draw(st.integers(0, len(cells)))
    column = column.slice(start, data.draw(st.integers(0, len(cells) - start)))
    found = made.values(column)
    assert repr(list(found)) == repr(column.to_pylist())  # NaN does not equal itself
    assert repr([found[at] for at in range(len(found))]) == repr(column.to_pylist())
    with pytest.raises(IndexError):
        found[len(column)]


@given(st.lists(st.none() | st.uuids()), st.integers(0, 9))
def test_uuids_are_those_of_their_text(
    made: ModuleType, cells: list[uuid.UUID | None], start: int
) -> None:
    """UUIDs compare, hash, print and pickle like `uuid.UUID` objects."""
    texts = [None if cell is None else str(cell) for cell in cells]
    found = list(made.uuids(pa.array(texts, pa.string()).slice(start)))
    expected = cells[start:]
    assert found == expected
    assert [*map(hash, found)] == [*map(hash, expected)]
    assert repr(found) == repr(expected)
    assert [*map(pickle.dumps, found)] == [*map(pickle.dumps, expected)]


class Four(bytes):
    """Four bytes."""

    __slots__ = ()

    def __new__(cls, raw: bytes) -> Self:
        if len(raw) != 4:
            raise ValueError(f"expected 4 bytes, found {len(raw)}")
        return super().__new__(cls, raw)


def test_blobs_are_of_their_class(made: ModuleType) -> None:
    """Blobs become objects of a subclass of bytes, which rejects blobs of other sizes."""
    column = pa.array([b"none", b"abcd", None, b"\0\1\2\3"]).slice(1)
    found = made.blobs(column, Four, 4)
    assert [found[at] for at in range(3)] == [b"abcd", None, b"\0\1\2\3"]
    assert type(found[0]) is Four
    assert hash(found[0]) == hash(b"abcd")
    for other in (b"", b"abc", b"abcde"):
        with pytest.raises(ValueError, match=f"expected 4 bytes, found {len(other)}"):
            list(made.blobs(pa.array([other]), Four, 4))


def test_tuples_contain_the_values_of_their_rows(made: ModuleType) -> None:
    """A tuple contains one row's value or, with bounds, the values of the rows between them."""
    numbers = made.values(pa.array([5, 6, None]))
    single = made.Tuples(numbers)
    assert [single[at] for at in range(3)] == [(5,), (6,), (None,)]
    several = made.Tuples(numbers, [2, 0, 1], [0, 0, 2, 3])
    assert [several[at] for at in range(3)] == [(), (None, 5), (6,)]
    for found in (single, several):
        with pytest.raises(IndexError):
            found[3]


@attrs.frozen
class Point:
    """An object with slots."""

    x: int
    y: int | None
    z: Any = None


def test_objects_are_made_of_columns(made: ModuleType) -> None:
    """Objects equal those made by calling their class with one item of each column."""
    columns = {"x": made.values(pa.array([1, 2])), "y": [3, None], "z": None}
    found = made.Objects(Point, columns)
    assert [found[at] for at in range(2)] == [Point(1, 3), Point(2, None)]
    assert repr(found[1]) == "Point(x=2, y=None, z=None)"
    assert pickle.loads(pickle.dumps(found[0])) == found[0]
    assert len({found[0], Point(1, 3)}) == 1
    with pytest.raises(IndexError):
        found[2]
    nested = made.Tuples(found, [1, 0], [0, 2])
    assert nested[0] == (Point(2, None), Point(1, 3))


NUMBER = "123e4567-e89b-42d3-a456-426614174000"


@pytest.mark.parametrize("text", [NUMBER.upper(), f"{{{NUMBER}}}", NUMBER.replace("-", "")])
def test_uuids_in_other_forms_are_read(made: ModuleType, text: str) -> None:
    """UUID texts are accepted in all forms that `uuid.UUID` accepts."""
    assert list(made.uuids(pa.array([text]))) == [uuid.UUID(NUMBER)]


@pytest.mark.parametrize(
    "text", ["", "x" * 36, NUMBER[:-1], NUMBER.replace("-", "+"), NUMBER + "0"]
)
def test_a_text_that_is_no_uuid_is_refused(made: ModuleType, text: str) -> None:
    """Text that is not a UUID raises the same error as `uuid.UUID`."""
    with pytest.raises(ValueError, match="badly formed hexadecimal UUID string"):
        list(made.uuids(pa.array([text])))


def test_values_outlive_their_column(made: ModuleType) -> None:
    """Values remain valid after their column is freed, because they keep its memory alive."""
    found = made.values(pa.array([f"text {n}" for n in range(1_000)]))
    gc.collect()
    assert [found[n] for n in range(1_000)] == [f"text {n}" for n in range(1_000)]


def test_a_mapping_has_the_fields_of_its_row(made: ModuleType) -> None:
    """A `Field` is in every mapping. A `GivenField` is omitted if the row does not set it."""
    numbers, nulls = (
        made.values(pa.array([1, None, None])),
        made.values(pa.array([None, True, False])),
    )
    fields = [
        made.Field("all", numbers),
        made.Field("none", None),
        made.GivenField("given", numbers, nulls),
        made.GivenField("set", numbers, nulls, DELETED, made.Wrapper),
        made.GivenField("missing", None, None),
    ]
    found = made.Mappings(bytes(3), [fields])
    assert [list(found[row].items()) for row in range(3)] == [
        [("all", 1), ("none", None), ("given", 1), ("set", made.Wrapper(1))],
        [("all", None), ("none", None), ("given", None), ("set", DELETED)],
        [("all", None), ("none", None)],
    ]
    assert type(found[0]) is FrozenDict
    with pytest.raises(IndexError):
        found[3]


def test_rows_of_several_kinds_have_their_own_fields(made: ModuleType) -> None:
    """Rows of different kinds have different fields. A field is any object with a `put` method."""

    class Row:
        def put(self, mapping: dict[str, Any], row: int) -> None:
            dict.__setitem__(mapping, "row", row)

    found = made.Mappings(b"\0\1\2", [[], [Row()], [made.Field("x", [7, 8, 9]), Row()]])
    assert [found[row] for row in range(3)] == [{}, {"row": 1}, {"x": 9, "row": 2}]


def test_picked_mappings_are_those_of_their_rows(made: ModuleType) -> None:
    """In the result of `picked`, each item whose row index is -1 is None.

    If a function is passed, such an item is the function's result for the item's index.
    """
    by_row = made.Mappings(bytes(3), [[made.Field("x", [7, 8, 9])]])
    assert [by_row.picked([2, -1, 0])[at] for at in range(3)] == [{"x": 9}, None, {"x": 7}]
    assert [by_row.picked([2, -1], str)[at] for at in range(2)] == [{"x": 9}, "1"]


@attrs.frozen
class Page:
    """A page whose sequences record which entries are read."""

    squares: Any


class Squares:
    """The squares of the indices. `read` lists the indices in the order of the reads."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __getitem__(self, index: int) -> list[int]:
        self.read.append(index)
        return [index * index]


def entry_class(made: ModuleType) -> Any:
    """Return a class of entries with the attribute `square`."""
    base: Any = made.Entry

    class Number(base):  # type: ignore[misc]  # of either kernel
        __slots__ = ("_square",)

        square = made.entry("squares", "The square.")

    return Number


def test_an_attribute_of_an_entry_is_read_once(made: ModuleType) -> None:
    """An entry reads an attribute once, on first use. The attribute cannot be set."""
    squares, kind = Squares(), entry_class(made)
    found = made.Entries(kind, Page(squares), 4)
    first, second, *others = found
    assert (second.square, first.square, squares.read) == ([1], [0], [1, 0])
    assert second.square is second.square
    assert [other.square for other in others] == [[4], [9]]
    assert kind(Page(squares), 5).square == [25]
    assert kind.square.__doc__ == "The square."
    assert squares.read == [1, 0, 2, 3, 5]
    with pytest.raises(AttributeError):
        first.square = 7
    assert list(found) == []


def test_an_attribute_that_is_not_kept_is_made_anew(made: ModuleType) -> None:
    """An attribute that is not kept needs no slot, and each access reads its sequence."""
    base: Any = made.Entry

    class Number(base):  # type: ignore[misc]  # of either kernel
        __slots__ = ()

        square = made.entry("squares", "The square.", kept=False)

    squares = Squares()
    (_, found) = made.Entries(Number, Page(squares), 2)
    assert (found.square, found.square, squares.read) == ([1], [1], [1, 1])
    assert Number.square.__doc__ == "The square."
    with pytest.raises(AttributeError):
        found.square = 7


def test_entries_can_be_ended(made: ModuleType) -> None:
    """After `end`, no more entries are yielded. Entries that were already yielded remain valid."""
    found = made.Entries(entry_class(made), Page([0, 1]), 2)
    first = next(found)
    found.end()
    assert list(found) == []
    assert first.square == 0


def test_entries_are_made_by_number_too(made: ModuleType) -> None:
    """Each access by index makes a new object, even after `end`. Invalid indices are rejected."""
    squares, kind = Squares(), entry_class(made)
    found = made.Entries(kind, page := Page(squares), 3)
    assert found.page is page
    assert [each.square for each in found] == [[0], [1], [4]]
    found.end()
    assert len(found) == 3
    assert [found[number].square for number in (2, 0, 2)] == [[4], [0], [4]]
    assert found[1] is not found[1]
    for number in (-1, 3):
        with pytest.raises(IndexError, match=f"found number {number}, expected one below 3"):
            _ = found[number]


def test_entries_are_freed_with_what_they_keep(made: ModuleType) -> None:
    """Entries are freed with their last reference, or collected if they are in a cycle."""
    kind = entry_class(made)
    squares: list[Any] = [{1}, {2}]
    found = list(made.Entries(kind, Page(squares), 2))
    assert found[0].square == {1}
    squares[1] = found  # a cycle
    assert found[1].square is found
    alive = [weakref.ref(each) for each in found]
    del found
    squares.clear()
    gc.collect()
    assert [each() for each in alive] == [None, None]


def test_a_sequence_that_fails_is_asked_again(made: ModuleType) -> None:
    """An error of the sequence is raised, and the next access reads the sequence again."""
    squares: list[int] = []
    (found,) = made.Entries(entry_class(made), Page(squares), 1)
    with pytest.raises(IndexError):
        _ = found.square
    squares.append(4)
    assert found.square == 4


def test_deltas_are_as_their_class_makes_them(made: ModuleType) -> None:
    """Deltas equal those made by calling their class, and are immutable, hashable and picklable."""
    cells = [1, "x", FrozenDict(a=1)]
    field = made.GivenField("c", cells, None, DELETED, made.Wrapper)
    mappings = made.Mappings(bytes(3), [[field]])
    found = [mappings[row]["c"] for row in range(3)]
    assert found == [made.Wrapper(value) for value in cells]
    assert set(found) == {made.Wrapper(value) for value in cells}
    assert pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(AttributeError):
        found[0].value = 2


def test_wrappers_are_values(made: ModuleType) -> None:
    """Wrappers of one class with equal values are equal, and can be hashed, copied and matched."""
    base: Any = made.Wrapper

    class Other(base):  # type: ignore[misc]  # of either kernel
        __slots__ = ()

    one = made.Wrapper(1)
    assert one == made.Wrapper(1.0)
    assert made.Wrapper(2) != one != Other(1)
    assert len({one, made.Wrapper(1), Other(1)}) == 2
    assert repr(made.Wrapper("x")) == "Wrapper(value='x')"
    assert repr(Other(1)).endswith("Other(value=1)")
    assert copy.deepcopy(one) == one
    assert one.__reduce__() == (made.Wrapper, (1,))
    match one:
        case made.Wrapper(value):
            assert value == 1
    with pytest.raises(AttributeError):
        one.value = 2


def test_the_compiled_kernel_refuses_columns_that_it_cannot_read() -> None:
    """The compiled kernel's class for values rejects columns whose values it cannot make."""
    compiled = kernel("cython")
    kind = type(compiled.values(pa.array([1])))
    for column in (pa.array([[1]]), pa.array([None]), pa.array([1]).dictionary_encode()):
        with pytest.raises(TypeError, match="expected numbers, booleans, text or blobs"):
            kind(column)


def test_the_compiled_kernel_refuses_kinds_that_it_cannot_make() -> None:
    """Making blobs requires a subclass of bytes, and making objects requires a class with slots."""
    compiled = kernel("cython")
    with pytest.raises(TypeError, match="expected a subclass of bytes"):
        compiled.blobs(pa.array([b""]), bytearray, 0)
    with pytest.raises(ValueError, match="expected blobs, found string"):
        compiled.blobs(pa.array([""]), Four, 4)
    with pytest.raises(TypeError, match="expected a class that makes"):
        compiled.Objects(int, {})
    with pytest.raises(TypeError, match="expected a slot 'squares'"):
        compiled.Objects(Squares, {"squares": None})


@pytest.mark.parametrize("kind", [FrozenDict, CollectionDelta, int])
def test_the_compiled_kernel_refuses_classes_that_it_cannot_make(kind: type) -> None:
    """The compiled kernel rejects classes whose objects it cannot make.

    The kernel makes objects without calling their constructor, and writes to their slots.
    """
    compiled = kernel("cython")
    with pytest.raises(TypeError, match="expected a class"):
        compiled.GivenField("c", [1], None, DELETED, kind)
    with pytest.raises(TypeError, match="expected a class"):
        compiled.Entries(kind, Page([]), 1)


def test_the_compiled_kernel_refuses_objects_of_other_classes() -> None:
    """The compiled kernel reads an attribute only from objects of the class that defines it."""
    kind = entry_class(kernel("cython"))
    with pytest.raises(TypeError, match="expected an instance of"):
        kind.__dict__["square"].__get__(7, int)
    with pytest.raises(AttributeError, match="was not initialized"):
        _ = kind.__new__(kind).square
