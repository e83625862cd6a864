"""Error messages of older versions; all other modules raise the newest version's messages."""

from __future__ import annotations

import re

from cdc_reader.testing.embedded.errors import CqlError

_GUESSED = (
    " : unexpected input...\n  expected one of : Actually dude, we didn't seem to be expecting "
    "anything here, or at least\nI could not work out what I was expecting, like so many of us "
    "these days!\n"
)
_BEFORE_5_4 = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"^(line \d+:\d+) : Syntax error$", r"\1  : syntax error...\n"),
        (r"^(line \d+:\d+) : Unexpected ''$", r"\1 " + _GUESSED),
        (r"^(line \d+:\d+) : Unexpected ('.+')$", r"\1 extraneous input \2 expecting <invalid>"),
        (r"^Column (.*) is not a map/list, cannot be subscripted$",
         r"Invalid element access syntax for set column \1"),
        (r"^Column (.*) is not a map/set/list, cannot be subscripted$",
         r"Invalid element access syntax for non-collection column \1"),
        (r"^(Only EQ and IN .*)or ALLOW FILTERING\)$", r"\1or allow filtering)"),
        (r"^restriction '(.*) IS NOT null'", r"restriction '(\1) IS NOT { null }'"),
        (r"^SELECT clause contains aggeregation of an aggregation$",
         "aggregate functions cannot be used as arguments of aggregate functions"),
        (r"^Unknown function (\w+) called$", r"Unknown function '\1'"),
        (r"Invalid ASCII character in string literal: ",
         "Value not compatible with type org.apache.cassandra.db.marshal.AsciiType: "),
        (r": boost::wrapexcept<.*", ""),
        (r"^Unknown sstable_compression: (?:org.apache.cassandra.io.compress.)?(.*)$",
         r"unable to find class 'org.apache.cassandra.io.compress.\1'"),
        (r"^(Parsing JSON failed: .*) at \d+$", r"\1"),
    )
]  # fmt: skip


def in_older_words(error: CqlError) -> None:
    """Replace an error's message with the message of versions before 5.4."""
    for pattern, replacement in _BEFORE_5_4:
        error.message = pattern.sub(replacement, error.message)
