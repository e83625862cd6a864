"""Names of tables, and CQL identifiers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Self

from attrs import frozen

from cdc_reader._settings import is_text
from cdc_reader.cql.reserved_words import RESERVED
from cdc_reader.errors import ConfigurationError

LOG_SUFFIX = "_scylla_cdc_log"

_ANY = "*"

_BARE = re.compile(r"[a-z][a-z0-9_]*")
_LONGEST = 1_000
"""The longest name, in characters; the server's limit is lower, and differs between versions."""
_TABLE_NAME = re.compile(r'("(?:[^"]|"")+"|[^".]+)\.("(?:[^"]|"")+"|[^".]+)')


def quoted(identifier: str) -> str:
    """Return the identifier as CQL text, in double quotes."""
    return '"' + identifier.replace('"', '""') + '"'


def bare_or_quoted(identifier: str) -> str:
    """Return the identifier as the server prints it: quoted if CQL needs the quotes."""
    is_bare = _BARE.fullmatch(identifier) and identifier not in RESERVED
    return identifier if is_bare else quoted(identifier)


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


@frozen
class TableName:
    """A table's keyspace and name, as stored (case-sensitive, without quotes)."""

    keyspace: str
    name: str

    def __attrs_post_init__(self) -> None:
        for option, text in (("keyspace", self.keyspace), ("name", self.name)):
            if not is_text(text):
                remedy = "give a string that is not empty, in UTF-8 and without NUL"
                raise ConfigurationError(option, text, remedy)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``keyspace.table``; either part may be in double quotes.

        Raises ConfigurationError if the text is not a table name.
        """
        parts = _TABLE_NAME.fullmatch(text.strip())
        if len(text) > _LONGEST or parts is None:
            remedy = "give it as keyspace.table, parts with a dot in double quotes"
            raise ConfigurationError("table", text, remedy)
        return cls(*(_unquoted(part) for part in parts.groups()))

    @classmethod
    def of(cls, name: str | TableName) -> TableName:
        """Return a TableName unchanged, or parse text with `parse`."""
        return name if isinstance(name, TableName) else cls.parse(name)

    @property
    def log(self) -> TableName:
        """The name of this base table's log table."""
        return TableName(self.keyspace, self.name + LOG_SUFFIX)

    @property
    def is_log_name(self) -> bool:
        """True if the name has the log suffix. The table is not necessarily a log."""
        return self.name.endswith(LOG_SUFFIX)

    @property
    def is_pattern(self) -> bool:
        """True for a pattern such as ``shop.*``: no table has a ``*`` in its name."""
        return _ANY in self.name

    def matches(self, name: TableName) -> bool:
        """Return True if this pattern stands for the table `name`; ``*`` is any characters."""
        return self.keyspace == name.keyspace and fnmatchcase(name.name, self.name)

    @property
    def cql(self) -> str:
        """The name as CQL text, quoted because it may be a reserved word in some version."""
        return f"{quoted(self.keyspace)}.{quoted(self.name)}"

    def __str__(self) -> str:
        """Return the name on one line; unprintable characters are escaped."""
        name = f"{self.keyspace}.{self.name}"
        return name if name.isprintable() else repr(name)[1:-1]


def table_names(names: str | TableName | Iterable[str | TableName]) -> tuple[TableName, ...]:
    """Return the distinct names of the tables; raise ConfigurationError if there are none."""
    listed = [names] if isinstance(names, str | TableName) else names
    if found := tuple(dict.fromkeys(map(TableName.of, listed))):
        return found
    raise ConfigurationError("tables", names, "give at least one table, as 'keyspace.table'")


def tables_or_patterns(
    names: str | TableName | Iterable[str | TableName],
) -> tuple[TableName, ...]:
    """Return the distinct names and patterns; raise ConfigurationError for none, or a bad one."""
    found = table_names(names)
    for name in found:
        if _ANY in name.keyspace:
            remedy = "name one keyspace: only the name of the table may have a *"
            raise ConfigurationError("tables", str(name), remedy)
    return found


def without_case(name: str) -> str:
    """Return what two names have in common if Spark, which compares letters, holds them equal.

    Some letters have the same capital letter, for example i and the Turkish dotless i.
    """
    return "".join(_lower(_one(letter, letter.upper())) for letter in name)


def _lower(letter: str) -> str:
    return _one(letter, letter.lower()[:1])


def _one(letter: str, other: str) -> str:
    return other if len(other) == 1 else letter
