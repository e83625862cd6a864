"""Parses JSON text into Python values, with the errors of RapidJSON, which ScyllaDB uses."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_MAX_NESTING = 78
_INTEGERS = range(-(1 << 63), 1 << 64)
_LONGEST_INTEGER = 20
_MAX_VALUES = 200_000
_STRUCTURE = re.compile(r'"(?:[^"\\]++|\\.)*+"|[][{},]', re.DOTALL)
_WORDS = re.compile(r'"(?:[^"\\]++|\\.)*+"|NaN|-?Infinity', re.DOTALL)
_MESSAGES = (
    ("Expecting value", "Invalid value."),
    ("Expecting property name", "Missing a name for object member."),
    ("Illegal trailing comma", "Missing a name for object member."),
    ("Expecting ':'", "Missing a colon after a name of object member."),
    ("Extra data", "The document root must not be followed by other values."),
    ("Unterminated string", "Missing a closing quotation mark in string."),
    ("Invalid \\escape", "Invalid escape character in string."),
    ("Invalid \\uXXXX", "Incorrect hex digit after \\u escape in string."),
    ("Invalid control character", "Invalid encoding in string."),
)


class JsonError(ValueError):
    """The text is not JSON, or contains a value of the wrong kind."""


def read_json(text: str) -> Any:
    """Parse JSON or raise JsonError; as in ScyllaDB, a repeated name keeps its first value."""
    _check_extent(text)
    try:
        value = json.loads(
            text,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=lambda word: _no_constant(word, text),
            object_pairs_hook=_first_of_each,
        )
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode(errors="surrogatepass"))
        raise JsonError(f"Parsing JSON failed: {_message(error, text)} at {offset}") from None
    if "\\u" in text:
        _check_surrogates(value)
    return value


def write_json(value: Any) -> str:
    """Format the value as ScyllaDB does in its messages."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _check_extent(text: str) -> None:
    depth = values = 0
    for token in _STRUCTURE.finditer(text):
        character = token.group()
        depth += (character in "[{") - (character in "]}")
        values += character == ","
        if values > _MAX_VALUES:
            raise JsonError(f"This server reads JSON of up to {_MAX_VALUES} values")
        if depth > _MAX_NESTING:
            raise JsonError(f"Max nested level reached: {_MAX_NESTING}")


def _check_surrogates(value: Any) -> None:
    """Reject an unpaired surrogate, which is not a character."""
    try:
        write_json(value).encode()
    except UnicodeEncodeError:
        raise JsonError(
            "Parsing JSON failed: The surrogate pair in string is invalid. at 0"
        ) from None


def _integer(digits: str) -> int | float:
    if len(digits) > _LONGEST_INTEGER or (number := int(digits)) not in _INTEGERS:
        return _float(digits)
    return number


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise JsonError("Parsing JSON failed: Number too big to be stored in double. at 0")
    return number


def _no_constant(word: str, text: str) -> None:
    """Raise the error for NaN or Infinity, which Python's parser would accept."""
    places = (m.start() for m in _WORDS.finditer(text) if m.group() == word)
    raise json.JSONDecodeError("Expecting value", text, next(places, 0))


def _first_of_each(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in members:
        found.setdefault(name, value)
    return found


def _message(error: json.JSONDecodeError, text: str) -> str:
    if not text.strip(" \t\r\n"):
        return "The document is empty."
    for start, message in _MESSAGES:
        if error.msg.startswith(start):
            return message
    if _innermost(text[: error.pos]) == "{":
        return "Missing a comma or } after an object member."
    return "Missing a comma or ] after an array element."


def _innermost(text: str) -> str:
    """Return the innermost open bracket, or an empty string if there is none."""
    still_open: list[str] = []
    for token in _STRUCTURE.finditer(text):
        if token.group() in ("[", "{"):
            still_open.append(token.group())
        elif token.group() in ("]", "}") and still_open:
            still_open.pop()
    return still_open[-1] if still_open else ""
