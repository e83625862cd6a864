"""Builds terms from Lark's parse trees."""

from __future__ import annotations

from lark import Token, Transformer, v_args

from cdc_reader.testing.embedded.grammar.terms import (
    CallTerm,
    Constant,
    ConstantKind,
    HintTerm,
    ListTerm,
    MapTerm,
    Marker,
    Null,
    SetTerm,
    Term,
    TupleTerm,
    UserTypeTerm,
)


@v_args(inline=True)
class TermBuilder(Transformer[Token, Term]):
    """Builds terms, with one method per grammar rule; numbers the bind markers in textual order."""

    def __init__(self) -> None:
        super().__init__()
        self._markers: list[str | None] = []

    null = Null
    hint_term = HintTerm

    def string(self, token: Token) -> Constant:
        return Constant(ConstantKind.STRING, token[1:-1].replace("''", "'"))

    def dollars(self, token: Token) -> Constant:
        return Constant(ConstantKind.STRING, token[2:-2])

    def plain(self, token: Token) -> Constant:
        """Return the constant for a token, whose type determines the constant's kind."""
        is_word = token.type in ("UUID", "BOOLEAN")
        return Constant(ConstantKind(token.type), token.lower() if is_word else str(token))

    def positional_marker(self) -> Marker:
        return self._marker(None)

    def named_marker(self, name: str) -> Marker:
        return self._marker(name)

    def list_term(self, *elements: Term | None) -> ListTerm:
        return ListTerm(_given(elements))

    def set_term(self, *elements: Term | None) -> SetTerm:
        return SetTerm(_given(elements))

    def map_term(self, *entries: tuple[Term, Term]) -> MapTerm:
        return MapTerm(entries)

    def user_type_term(self, *fields: tuple[str, Term]) -> UserTypeTerm:
        return UserTypeTerm(fields)

    def tuple_term(self, *elements: Term) -> TupleTerm:
        return TupleTerm(elements)

    def call_term(self, name: str, *arguments: Term | None) -> CallTerm:
        return CallTerm(name, _given(arguments))

    def function_name(self, first: str, second: str | None = None) -> str:
        return first.lower() if second is None or first != "system" else second

    def _marker(self, name: str | None) -> Marker:
        """Return the marker; markers with the same name share one variable."""
        if name is None or name not in self._markers:
            self._markers.append(name)
            return Marker(len(self._markers) - 1, name)
        return Marker(self._markers.index(name), name)


def _given(terms: tuple[Term | None, ...]) -> tuple[Term, ...]:
    return tuple(term for term in terms if term is not None)
