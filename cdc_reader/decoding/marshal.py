"""Parses types that are Java class names in a result's metadata (vectors, durations)."""

from __future__ import annotations

import re
from collections.abc import Callable

from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
    freeze,
)
from cdc_reader.errors import DecodeError

_NATIVE = {
    "AsciiType": "ascii", "LongType": "bigint", "BytesType": "blob", "BooleanType": "boolean",
    "CounterColumnType": "counter", "SimpleDateType": "date", "DecimalType": "decimal",
    "DoubleType": "double", "DurationType": "duration", "FloatType": "float",
    "InetAddressType": "inet", "Int32Type": "int", "ShortType": "smallint", "UTF8Type": "text",
    "TimeType": "time", "TimestampType": "timestamp", "DateType": "timestamp",
    "TimeUUIDType": "timeuuid", "ByteType": "tinyint", "UUIDType": "uuid",
    "IntegerType": "varint",
}  # fmt: skip
_TOKEN = re.compile(r"\s*([\w.$]+|[(),:])")
_DIMENSION = re.compile(r"[1-9][0-9]{0,8}")
MAX_DEPTH = 30
"""The maximum nesting depth of types: Arrow supports 64 levels, and a map takes two."""


def parse_marshal(text: str, depth: int = 0) -> CqlType:
    """Parse a class name such as ``o.a.c.db.marshal.VectorType(…FloatType , 3)``.

    `depth` is the nesting depth of the enclosing type. Raises DecodeError for an unknown class.
    """
    return _Parser(text, depth).whole()


def check_depth(depth: int) -> None:
    """Raise DecodeError for a type that is nested too deeply."""
    if depth > MAX_DEPTH:
        raise DecodeError(f"a type in the result's metadata is nested deeper than {MAX_DEPTH}")


class _Parser:
    """A recursive-descent parser of ``Name(argument, …)``; an argument may be ``key:Name(…)``."""

    def __init__(self, text: str, depth: int) -> None:
        self._text = text
        self._depth = depth
        self._tokens: list[str] = _TOKEN.findall(text)
        self._at = 0

    def whole(self) -> CqlType:
        parsed = self._type()
        if self._at != len(self._tokens):
            raise self._unknown()
        return parsed

    def _type(self) -> CqlType:
        name = self._next().rpartition(".")[2]
        if name in _NATIVE:
            return Native(_NATIVE[name])
        if (make := _PARAMETRIC.get(name)) is None:
            raise self._unknown()
        self._depth += 1
        check_depth(self._depth)
        made = make(self)
        self._depth -= 1
        return made

    def vector(self) -> CqlType:
        self._expect("(")
        element = self._type()
        self._expect(",")
        dimension = self._next()
        self._expect(")")
        if not _DIMENSION.fullmatch(dimension):
            raise self._unknown()
        return VectorType(element, int(dimension))

    def user_type(self) -> CqlType:
        self._expect("(")
        keyspace = self._next()
        self._expect(",")
        name = self._unhex(self._next())
        fields = []
        while self._next() == ",":
            field = self._unhex(self._next())
            self._expect(":")
            fields.append((field, self._type()))
        return UserType(keyspace, name, tuple(fields))

    def of(self, make: Callable[..., CqlType], count: int) -> CqlType:
        types = self.types()
        if len(types) != count:
            raise self._unknown()
        return make(*types)

    def types(self) -> list[CqlType]:
        self._expect("(")
        arguments = [self._type()]
        while (mark := self._next()) == ",":
            arguments.append(self._type())
        if mark != ")":
            raise self._unknown()
        return arguments

    def _unhex(self, text: str) -> str:
        try:
            return bytes.fromhex(text).decode()
        except ValueError:
            raise self._unknown() from None

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise self._unknown()

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise self._unknown()
        self._at += 1
        return self._tokens[self._at - 1]

    def _unknown(self) -> DecodeError:
        return DecodeError(f"unknown type {self._text!r} in the result's metadata")


_PARAMETRIC: dict[str, Callable[[_Parser], CqlType]] = {
    "FrozenType": lambda parser: freeze(parser.types()[0]),
    "ListType": lambda parser: parser.of(ListType, 1),
    "MapType": lambda parser: parser.of(MapType, 2),
    "ReversedType": lambda parser: parser.types()[0],
    "SetType": lambda parser: parser.of(SetType, 1),
    "TupleType": lambda parser: TupleType(tuple(parser.types())),
    "UserType": _Parser.user_type,
    "VectorType": _Parser.vector,
}
