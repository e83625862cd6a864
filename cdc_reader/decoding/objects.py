"""Makes Python objects from the rows of Arrow columns when they are read, in pure Python.

`values` returns a column as a sequence, and `Mappings` is a sequence with a mapping for each row.
`Entries` yields objects. Each attribute of an object is declared as an `entry`, and is an item of
one of these sequences. An item that is not read therefore costs nothing, and an item that was read
lives only as long as its object.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import pyarrow as pa
from attrs import frozen

from cdc_reader.cql.values import FrozenDict

B = TypeVar("B", bound=bytes)
E = TypeVar("E", bound="Entry")
Other = Callable[[int], Mapping[str, Any] | None]


def values(array: pa.Array) -> Sequence[Any]:
    """Return the values of an Arrow column, as `to_pylist` does.

    The compiled kernel makes numbers, booleans, text and blobs only when they are read.
    """
    found: list[Any] = array.to_pylist()
    return found


def uuids(array: pa.Array) -> Sequence[Any]:
    """Return the UUIDs of a column that contains them as text."""
    return [None if text is None else uuid.UUID(text) for text in array.to_pylist()]


def blobs(array: pa.Array, kind: type[B], size: int) -> Sequence[Any]:  # noqa: ARG001 - the interface
    """Return the blobs of a column as objects of `kind`, a subclass of bytes.

    The compiled kernel calls `kind` only for blobs that do not have `size` bytes. `kind` must
    therefore accept all blobs of this size, and add no attributes to them.
    """
    return [None if blob is None else kind(blob) for blob in array.to_pylist()]


@frozen
class Wrapper:
    """An object with one attribute, for subclasses that add only methods.

    Objects of one class with equal values are equal. The garbage collector does not scan the
    compiled kernel's wrappers, so a value must not refer to its wrapper.
    """

    value: Any

    def __reduce__(self) -> tuple[type[Self], tuple[Any]]:
        return type(self), (self.value,)


class Field:
    """A column that puts its value, or None, into the mapping of each row.

    `values` is None if the column is null in all rows.
    """

    def __init__(self, name: str, values: Sequence[Any] | None) -> None:
        self._name = name
        self._values = values

    def put(self, mapping: dict[str, Any], row: int) -> None:
        """Put the column's value of this row into the row's mapping."""
        _set(mapping, self._name, self._value(row))

    def _value(self, row: int) -> Any:
        return None if self._values is None else self._values[row]


class GivenField(Field):
    """A column that appears only in the mappings of some rows.

    A row's value is put into its mapping as ``kind(value)``, or unchanged if `kind` is None. A null
    value is replaced with `null` if the row's item in `nulls` is true; otherwise, the mapping does
    not contain the column.
    """

    def __init__(
        self,
        name: str,
        values: Sequence[Any] | None,
        nulls: Sequence[Any] | None,
        null: Any = None,
        kind: type[Wrapper] | None = None,
    ) -> None:
        super().__init__(name, values)
        self._nulls = nulls
        self._null = null
        self._kind = kind

    def put(self, mapping: dict[str, Any], row: int) -> None:
        """Put this row's value into the row's mapping, unless the row has no value."""
        if (value := self._value(row)) is not None:
            _set(mapping, self._name, value if self._kind is None else self._kind(value))
        elif self._nulls is not None and self._nulls[row]:
            _set(mapping, self._name, self._null)


class Mappings:
    """A sequence with a `FrozenDict` for each row, which is made from the row's fields on access.

    `kinds` contains one byte for each row: the index in `fields` of the list of the row's fields. A
    field may be any object with a method like `Field.put`.
    """

    def __init__(self, kinds: bytes, fields: Sequence[Sequence[Any]]) -> None:
        self._kinds = kinds
        self._fields = fields
        self._rows: list[int] | None = None
        self._other: Other | None = None

    def picked(self, rows: list[int], other: Other | None = None) -> Mappings:
        """Return the mappings of these rows.

        If ``rows[index]`` is negative, the item at `index` is ``other(index)``, or None if `other`
        is None.
        """
        made = Mappings(self._kinds, self._fields)
        made._rows, made._other = rows, other
        return made

    def __getitem__(self, index: int) -> Any:
        row = index if self._rows is None else self._rows[index]
        if row < 0:
            return None if self._other is None else self._other(index)
        made: FrozenDict[str, Any] = FrozenDict()
        for field in self._fields[self._kinds[row]]:
            field.put(made, row)
        return made


class Objects:
    """A sequence of objects of `kind`, each made on access from an item of each column.

    `columns` contains a sequence for each attribute, in the order of the parameters of `kind`; a
    sequence that is None stands for an attribute that is always None. The compiled kernel fills the
    slots of `kind` without calling it.
    """

    def __init__(self, kind: type[Any], columns: Mapping[str, Any]) -> None:
        self._kind = kind
        self._columns = list(columns.values())

    def __getitem__(self, index: int) -> Any:
        return self._kind(*(None if each is None else each[index] for each in self._columns))


class Tuples:
    """A sequence of tuples of values, each made on access.

    The tuple at `index` contains the values of ``rows[bounds[index]:bounds[index + 1]]``. Without
    `rows`, it contains only the value at `index`.
    """

    def __init__(
        self,
        values: Any,
        rows: list[int] | None = None,
        bounds: list[int] | None = None,
    ) -> None:
        self._values = values
        self._rows = rows
        self._bounds = bounds

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if self._rows is None or self._bounds is None:
            return (self._values[index],)
        first, end = self._bounds[index], self._bounds[index + 1]
        return tuple([self._values[row] for row in self._rows[first:end]])


class Entry:
    """An object of a page; subclasses declare its attributes with `entry`."""

    __slots__ = ("__weakref__", "_number", "_page")

    def __init__(self, page: Any, number: int) -> None:
        self._page = page
        self._number = number


class entry:  # noqa: N801 - used like `property`
    """An attribute of an `Entry`, read from a sequence of its page.

    The sequence is the page's attribute `name`; the value is the sequence's item at the object's
    number. If `kept` is True, the object keeps the value after the first read, in a slot whose
    name is the attribute's name with an underscore before it. Otherwise, each read computes the
    value again, which costs no more than keeping it and needs no slot.
    """

    def __init__(self, name: str, doc: str, *, kept: bool = True) -> None:
        self._sequence = name
        self._is_kept = kept
        self.__doc__ = doc

    def __set_name__(self, owner: type[Entry], name: str) -> None:
        if self._is_kept:
            self._slot = vars(owner)[f"_{name}"]

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        if not self._is_kept:
            return getattr(instance._page, self._sequence)[instance._number]  # noqa: SLF001
        try:
            return self._slot.__get__(instance)
        except AttributeError:
            found = getattr(instance._page, self._sequence)[instance._number]  # noqa: SLF001
            self._slot.__set__(instance, found)
            return found


class Entries(Iterator[E]):
    """The `count` objects of a page, numbered from 0, each made when it is requested.

    Any thread may request an object by its number; each request makes a new object.
    """

    def __init__(self, kind: type[E], page: Any, count: int) -> None:
        self.page = page
        self._kind = kind
        self._count = count
        self._numbers = iter(range(count))
        self._has_ended = False

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> E:
        if not 0 <= number < self._count:
            raise IndexError(f"found number {number}, expected one below {self._count}")
        return self._kind(self.page, number)

    def __next__(self) -> E:
        if self._has_ended:
            raise StopIteration
        return self._kind(self.page, next(self._numbers))

    def end(self) -> None:
        """Stop yielding objects. Any thread may call this method."""
        self._has_ended = True


_set = dict.__setitem__  # because a FrozenDict is read-only
