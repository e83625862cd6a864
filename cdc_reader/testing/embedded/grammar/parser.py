"""Parses CQL text into statements."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import sys
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from pickle import UnpicklingError
from tempfile import NamedTemporaryFile

import lark
from lark import Lark, Token, Tree, UnexpectedInput
from lark.exceptions import UnexpectedToken, VisitError

from cdc_reader.cql.reserved_words import RESERVED
from cdc_reader.testing.embedded.errors import CqlError, InvalidSyntax
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.grammar.builder import AstBuilder
from cdc_reader.testing.embedded.text_cache import TextCache

_UNSUPPORTED = re.compile(
    r"\s*+((?:create|alter|drop)\s+(?:custom\s+index|index|materialized\s+view|role|user|aggregate"
    r"|function|or\s+replace\s+\w+|service\s+level|service_level|trigger)"
    r"|grant|revoke|list|prune|attach|detach)\b",
    re.IGNORECASE,
)

_NAME = r'(?:"(?:[^"]|"")+"|\w+)'
_VIEW = re.compile(
    rf"""\s*+ create .*? \bas\s+select\b .*? \bfrom\s+ (?:({_NAME})\s*\.\s*)? ({_NAME})""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_WITH_CDC = re.compile(r"\bwith\b.*\bcdc\s*=", re.IGNORECASE | re.DOTALL)


_MAX_WORDS = 200_000
_WORD = re.compile(
    r"""'(?:[^']++|'')*+'? | "[^"]*+"? | \$\$.*?(?:\$\$|$(?!\n)) | (?:--|//)[^\n]*+"""
    r"""| /\*.*?(?:\*/|$(?!\n)) | \w++ | [^\s\w]""",
    re.DOTALL | re.VERBOSE,
)
_VIEW_LENGTH = 8192
_CACHED_CHARACTERS = 1 << 23

_parsed: TextCache[ast.Statement | CqlError] = TextCache(_CACHED_CHARACTERS)


def parse(cql: str) -> ast.Statement:
    """Parse `cql`; raise InvalidSyntax if it is not a statement or exceeds 200,000 tokens."""
    outcome = _parsed.get(cql)
    if outcome is None:
        outcome = _outcome(cql)
        _parsed.put(cql, outcome, len(cql))
    if isinstance(outcome, CqlError):
        raise type(outcome)(outcome.message)
    return outcome


def parse_ahead(cql: str) -> None:
    """Parse a long statement, and cache the result for `parse`; called in a worker thread."""
    if _parsed.get(cql) is None:
        _parsed.put(cql, _outcome(cql), len(cql))


def _outcome(cql: str) -> ast.Statement | CqlError:
    try:
        return _parse(cql)
    except CqlError as error:
        return error.with_traceback(None)


def _parse(cql: str) -> ast.Statement:
    _check_extent(cql)
    if unsupported := _UNSUPPORTED.match(cql):
        return _unsupported(" ".join(unsupported.group(1).upper().split()), cql)
    try:
        statement: ast.Statement = AstBuilder().transform(build_parser().parse(cql))
    except UnexpectedInput as unexpected:
        raise InvalidSyntax(_message(unexpected, cql)) from None
    except VisitError as failed:
        raise failed.orig_exc from None
    except RecursionError:
        raise InvalidSyntax("line 1:0 the statement is nested too deeply") from None
    return statement


def _check_extent(cql: str) -> None:
    """Reject a text with too many tokens, which would take too long to parse."""
    if len(cql) <= _MAX_WORDS:
        return
    beyond = next(itertools.islice(_WORD.finditer(cql), _MAX_WORDS, None), None)
    if beyond is not None:
        line = cql.count("\n", 0, beyond.start()) + 1
        column = beyond.start() - (cql.rfind("\n", 0, beyond.start()) + 1)
        raise InvalidSyntax(
            f"line {line}:{column} the statement is too long for this server, which reads up to "
            f"{_MAX_WORDS} words and signs: bind values, or split it"
        )


def _unsupported(what: str, cql: str) -> ast.Unsupported:
    cql = cql[:_VIEW_LENGTH]
    if what != "CREATE MATERIALIZED VIEW" or not (view := _VIEW.match(cql)):
        return ast.Unsupported(what)
    keyspace, name = (_unquoted(part) if part else None for part in view.groups())
    base = ast.TableName(keyspace, name or "")
    return ast.Unsupported(what, base, with_cdc=bool(_WITH_CDC.search(cql, view.end())))


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


@functools.cache
def build_parser() -> Lark:
    """Return the parser; its tables are cached on disk, because building them takes a second."""
    grammar = _grammar()
    known = hashlib.sha256(f"{grammar}{lark.__version__}{sys.version}".encode()).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "scylla-cdc"
    tables = cache / f"cql-{known[:16]}.tables"
    with suppress(OSError, EOFError, UnpicklingError), tables.open("rb") as kept:
        return Lark.load(kept)
    made = Lark(grammar, parser="lalr", lexer="contextual", maybe_placeholders=True)
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=cache, delete=False) as file:
            made.save(file)
        Path(file.name).replace(tables)  # atomic, because several processes may build it
    return made


def _grammar() -> str:
    """Return the grammar with its keywords and reserved words added."""
    grammar = files(__package__).joinpath("cql.lark").read_text(encoding="utf-8")
    rules = re.sub(r"^//.*$", "", grammar.partition("// Words")[0], flags=re.MULTILINE)
    defined = set(re.findall(r"^(\w+)[.:]", grammar, re.MULTILINE))
    for name in sorted(set(re.findall(r"\b_?[A-Z]{2,}\b", rules)) - defined):
        grammar += f"{name}.2: /{name.strip('_').lower()}\\b/i\n"
    return grammar.replace("RESERVED", f"(?:{'|'.join(sorted(RESERVED))})")


def _message(unexpected: UnexpectedInput, cql: str) -> str:
    """Format the message as ScyllaDB does: columns start at 0, and the end of the text is 1:0."""
    accepted = unexpected.accepts if isinstance(unexpected, UnexpectedToken) else set()
    position, found = getattr(unexpected, "pos_in_stream", None) or 0, ""
    place = f"line {_place(cql, position)}"
    read = unexpected.state.value_stack if isinstance(unexpected, UnexpectedToken) else []
    match read[-2:]:  # ScyllaDB's parser reports a wrong call at its parenthesis
        case [Tree(data="called_name" | "called_in"), Token(start_pos=int(opened))]:
            return f"line {_place(cql, opened)} no viable alternative at input '('"
        case [Token(type="_SELECT" | "COMMA"), Token(type="TOKEN")]:
            accepted = set()
    match unexpected:
        case UnexpectedToken(token=token) if token.type == "$END":
            place, found = "line 1:0", "<EOF>"
        case _ if cql.startswith(("--", "//"), position):  # a line comment without a line break
            return f"line {_place(cql, len(cql))} : Unexpected ''"
        case UnexpectedToken(token=token):
            found = str(token)
        case _ if cql[position].isascii() and (word := _WORD.match(cql, position)):
            found = word.group()
    is_superfluous = cql[position + len(found) :].lstrip().startswith(")")
    if is_superfluous and accepted >= {"COMMA", "RPAR"}:
        return f"{place} : Unexpected '{found}'"
    if len(accepted) == 1 or "_APPLY" in accepted:
        return f"{place} : Syntax error"
    return f"{place} no viable alternative at input '{found}'"


def _place(cql: str, position: int) -> str:
    return f"{cql.count(chr(10), 0, position) + 1}:{position - cql.rfind(chr(10), 0, position) - 1}"
