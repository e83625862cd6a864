"""CQL types as values, with the text forms of `system_schema`.

Types are immutable and hashable, and print as the server prints them (``frozen<map<int, text>>``).
The schema, the decoding kernel, the Spark source and the embedded server share them.

`Transform` walks types and their component types. A new native type needs a name in `NATIVE_TYPES`,
and an entry under that name in these tables:

- for its names in results: `decoding.metadata` and `decoding.marshal`
- for conversion of its bytes to Arrow: `decoding.arrow_type`, `decoding.scalars`,
  ``decoding/native/shape.pxi`` and, if a vector packs its values without lengths, `decoding.cells`
- for Python, JSON and the driver: `cql.values`, `cql.order`, `cql.json`, `cluster.values` and, if
  its values are of a class that is new here, `changes.json`
- for Spark, if its Arrow type is new there: `schema` of the connector
- for the embedded server: `codec.marshal` and `protocol.types` (its names), `codec.constant`,
  `codec.json_value`, `codec.validation` and `codec.order` (literals, JSON, valid bytes, order), and
  for numbers `query.cast`, `query.aggregates` and `query.json_output`

``tests/cdc_reader/cql/test_types.py`` finds most missing entries. Values for tests belong in
``tests/cdc_reader/decoding/schemas.py``, ``tests/cdc_reader/decoding/wire.py``,
``tests/cdc_reader/changes/test_change.py`` and
``tests/connectors/pyspark_scylla_cdc/test_type_matrix.py``. Users find the type in the tables of
``docs/reference/changes.md`` and ``docs/reference/spark-options.md``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar

from attrs import evolve, frozen

from cdc_reader.cql.names import bare_or_quoted

R = TypeVar("R")

_NAME_PART = r'"(?:[^"]|"")*"|[\w.$]+'
"""A quoted name, or names without quotes; a qualified name, such as ``ks."T"``, has two parts."""

NATIVE_TYPES = frozenset(
    "ascii bigint blob boolean counter date decimal double duration float inet int smallint "
    "text time timestamp timeuuid tinyint uuid varint".split()
)


@frozen
class Native:
    """A scalar type, by its canonical name (``varchar`` is spelled ``text``)."""

    name: str

    def __str__(self) -> str:
        return self.name


@frozen
class ListType:
    """``list<element>``; a frozen list is one cell, and other lists have one cell per element."""

    element: CqlType
    frozen: bool = False

    def __str__(self) -> str:
        return _frozen_text(f"list<{self.element}>", self.frozen)


@frozen
class SetType:
    """``set<element>``."""

    element: CqlType
    frozen: bool = False

    def __str__(self) -> str:
        return _frozen_text(f"set<{self.element}>", self.frozen)


@frozen
class MapType:
    """``map<key, value>``."""

    key: CqlType
    value: CqlType
    frozen: bool = False

    def __str__(self) -> str:
        return _frozen_text(f"map<{self.key}, {self.value}>", self.frozen)


@frozen
class TupleType:
    """``tuple<...>``: always frozen, and printed as frozen."""

    elements: tuple[CqlType, ...]

    def __str__(self) -> str:
        return f"frozen<tuple<{', '.join(map(str, self.elements))}>>"


@frozen
class UserType:
    """A user-defined type, with its fields in the order of declaration."""

    keyspace: str
    name: str
    fields: tuple[tuple[str, CqlType], ...]
    frozen: bool = False

    def __str__(self) -> str:
        return _frozen_text(bare_or_quoted(self.name), self.frozen)


@frozen
class VectorType:
    """``vector<element, dimension>``: always one cell."""

    element: CqlType
    dimension: int

    def __str__(self) -> str:
        return f"vector<{self.element}, {self.dimension}>"


CqlType = Native | ListType | SetType | MapType | TupleType | UserType | VectorType
"""A CQL type as a value; `str` returns the server's text for it. Its classes are private."""
Collection = ListType | SetType | MapType


def is_multi_cell(cql_type: CqlType) -> bool:
    """Return True for a non-frozen collection or UDT, which has one cell per element."""
    return isinstance(cql_type, ListType | SetType | MapType | UserType) and not cql_type.frozen


def freeze(cql_type: CqlType) -> CqlType:
    """Return the frozen form of the type, or the type itself if it has none."""
    if isinstance(cql_type, ListType | SetType):
        return evolve(cql_type, element=freeze(cql_type.element), frozen=True)
    if isinstance(cql_type, MapType):
        return evolve(cql_type, key=freeze(cql_type.key), value=freeze(cql_type.value), frozen=True)
    if isinstance(cql_type, UserType):
        return evolve(cql_type, frozen=True)
    return cql_type


@frozen
class Transform(Generic[R]):
    """A bottom-up walk over a type: each type's result is computed from its components' results.

    Each function receives the type, and the results for its element, for its key and value, or
    for its fields.
    """

    native: Callable[[Native], R]
    sequence: Callable[[ListType | SetType | VectorType, R], R]
    mapping: Callable[[MapType, R, R], R]
    struct: Callable[[TupleType | UserType, Sequence[R]], R]

    def __call__(self, cql_type: CqlType) -> R:
        """Return the result for the type."""
        match cql_type:
            case Native():
                return self.native(cql_type)
            case ListType(element) | SetType(element) | VectorType(element):
                return self.sequence(cql_type, self(element))
            case MapType(key, value):
                return self.mapping(cql_type, self(key), self(value))
            case TupleType() | UserType():
                return self.struct(cql_type, [self(part) for part in children(cql_type)])


def rebuilt(cql_type: CqlType, change: Callable[[CqlType], CqlType]) -> CqlType:
    """Return the type with `change` applied to it and to each type inside it, innermost first."""

    def struct(cql_type: TupleType | UserType, parts: Sequence[CqlType]) -> CqlType:
        if isinstance(cql_type, TupleType):
            return change(TupleType(tuple(parts)))
        names = (name for name, _ in cql_type.fields)
        return change(evolve(cql_type, fields=tuple(zip(names, parts, strict=True))))

    rebuild = Transform[CqlType](
        native=change,
        sequence=lambda cql_type, element: change(evolve(cql_type, element=element)),
        mapping=lambda cql_type, key, value: change(evolve(cql_type, key=key, value=value)),
        struct=struct,
    )
    return rebuild(cql_type)


def children(cql_type: CqlType) -> tuple[CqlType, ...]:
    """Return the direct component types of a type."""
    match cql_type:
        case ListType(element) | SetType(element) | VectorType(element):
            return (element,)
        case MapType(key, value):
            return key, value
        case TupleType(elements):
            return elements
        case UserType(fields=fields):
            return tuple(field for _, field in fields)
        case _:
            return ()


def parts(cql_type: CqlType) -> Iterator[CqlType]:
    """Yield a type and all types inside it."""
    yield cql_type
    for child in children(cql_type):
        yield from parts(child)


def parse(text: str, user_type: Callable[[str], UserType] | None = None) -> CqlType:
    """Parse the text of a CQL type.

    `user_type` resolves the name of a user-defined type, which is qualified if it is qualified in
    the text, to its (non-frozen) definition.
    Raises ValueError for text that is not a CQL type.
    """
    tokens = _tokens(text)
    parsed = _parse(tokens, user_type, text)
    if (rest := next(tokens, None)) is not None:
        raise ValueError(f"CQL type {text!r}: unexpected {rest!r}")
    return parsed


def _frozen_text(text: str, is_frozen: bool) -> str:
    return f"frozen<{text}>" if is_frozen else text


def _tokens(text: str) -> Iterator[str]:
    end = 0
    for match in re.finditer(rf"\s*((?:{_NAME_PART})+|[<>,])", text):
        if match.start() != end:
            break
        end = match.end()
        yield match.group(1)
    if text[end:].strip():
        raise ValueError(f"CQL type {text!r}: unexpected {text[end:].strip()!r}")


def _parse(
    tokens: Iterator[str], user_type: Callable[[str], UserType] | None, text: str
) -> CqlType:
    name = next(tokens, "")
    if '"' in name:
        return _user_type(_unquoted(name), user_type, text)
    lower = name.lower()
    if lower in _PARAMETRIC:
        return _PARAMETRIC[lower](_arguments(tokens, user_type, text), text)
    if lower in NATIVE_TYPES or lower == "varchar":
        return Native("text" if lower == "varchar" else lower)
    return _user_type(lower, user_type, text)


def _unquoted(name: str) -> str:
    """Return a name, which may be qualified, without quotes."""
    parts = re.findall(_NAME_PART, name)
    return "".join(
        part[1:-1].replace('""', '"') if part.startswith('"') else part.lower() for part in parts
    )


def _arguments(
    tokens: Iterator[str], user_type: Callable[[str], UserType] | None, text: str
) -> list[CqlType | int]:
    if next(tokens, None) != "<":
        raise ValueError(f"CQL type {text!r}: expected '<'")
    arguments: list[CqlType | int] = []
    while True:
        token = next(tokens, "")
        if token.isdigit():
            arguments.append(int(token))
        else:
            arguments.append(_parse(chain([token], tokens), user_type, text))
        match next(tokens, None):
            case ",":
                continue
            case ">":
                return arguments
            case other:
                raise ValueError(f"CQL type {text!r}: expected ',' or '>', found {other!r}")


def _user_type(name: str, user_type: Callable[[str], UserType] | None, text: str) -> CqlType:
    if not name or user_type is None:
        raise ValueError(f"CQL type {text!r}: unknown type {name!r}")
    return user_type(name)


def _frozen(inner: CqlType) -> CqlType:
    if isinstance(inner, Native):
        raise ValueError(  # noqa: TRY004 - the text is wrong, not an argument's type
            f"frozen<> is only allowed on collections, tuples, and user-defined types (got {inner})"
        )
    return freeze(inner)


def _build(make: Callable[..., CqlType], count: int | None) -> Callable[..., CqlType]:
    def build(arguments: list[CqlType | int], text: str) -> CqlType:
        if count is not None and len(arguments) != count:
            raise ValueError(f"CQL type {text!r}: expected {count} parameters")
        return make(*arguments)

    return build


_PARAMETRIC: dict[str, Callable[..., CqlType]] = {
    "list": _build(ListType, 1),
    "set": _build(SetType, 1),
    "map": _build(MapType, 2),
    "tuple": _build(lambda *elements: TupleType(elements), None),
    "vector": _build(VectorType, 2),
    "frozen": _build(_frozen, 1),
}
