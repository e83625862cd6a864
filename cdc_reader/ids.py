"""Identifiers: streams of a CDC log, and names of tables."""

from __future__ import annotations

import re
from typing import Self

from attrs import frozen

from cdc_reader.errors import ConfigurationError

LOG_SUFFIX = "_scylla_cdc_log"


def quoted(identifier: str) -> str:
    """The identifier as CQL text, always in double quotes."""
    return '"' + identifier.replace('"', '""') + '"'


_TABLE_NAME = re.compile(r'("(?:[^"]|"")+"|[^".]+)\.("(?:[^"]|"")+"|[^".]+)')


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


class StreamId(bytes):
    """A stream of the log: the 16 bytes of ``cdc$stream_id``.

    Big-endian: a signed 64-bit token, then 38 random bits, 22 bits of vnode index and 4 bits
    of version. Ids from before ScyllaDB 4.3 have 64 random low bits, so of them only the
    token means anything. A subclass of `bytes`, for a large cluster has millions of them.
    """

    __slots__ = ()

    def __new__(cls, raw: bytes) -> Self:
        if len(raw) != 16:
            raise ValueError(f"stream id {raw.hex()!r}: expected 16 bytes, found {len(raw)}")
        return super().__new__(cls, raw)

    @classmethod
    def from_parts(cls, token: int, random: int, index: int, version: int = 1) -> Self:
        """The id of these parts; raises ValueError if one does not fit its bits."""
        if random >> 38 or index >> 22 or version >> 4:
            raise ValueError(f"stream id parts {random}, {index}, {version}: out of range")
        low = random << 26 | index << 4 | version
        return cls(token.to_bytes(8, "big", signed=True) + low.to_bytes(8, "big"))

    @property
    def token(self) -> int:
        """The position on the ring of the stream's partition."""
        return int.from_bytes(self[:8], "big", signed=True)

    @property
    def random(self) -> int:
        return self._low >> 26

    @property
    def index(self) -> int:  # type: ignore[override]  # of the vnode; nobody searches in an id
        """The vnode's number in its generation; 0 with tablets."""
        return self._low >> 4 & (1 << 22) - 1

    @property
    def version(self) -> int:
        return self._low & 0xF

    @property
    def _low(self) -> int:
        return int.from_bytes(self[8:], "big")

    def __repr__(self) -> str:
        return f"StreamId({self.hex()})"

    __str__ = __repr__


@frozen
class TableName:
    """A table by keyspace and name, as stored (case-sensitive, without quotes)."""

    keyspace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The table that ``keyspace.table`` names, as stored; either part may be in quotes.

        Raises ConfigurationError if the text names none.
        """
        if not (parts := _TABLE_NAME.fullmatch(text.strip())):
            remedy = "give it as keyspace.table, parts with a dot in double quotes"
            raise ConfigurationError("table", text, remedy)
        return cls(*(_unquoted(part) for part in parts.groups()))

    @property
    def log(self) -> TableName:
        """The name of this base table's log table."""
        return TableName(self.keyspace, self.name + LOG_SUFFIX)

    @property
    def is_log_name(self) -> bool:
        """Whether the name has the log suffix; only the server knows whether it is a log."""
        return self.name.endswith(LOG_SUFFIX)

    @property
    def cql(self) -> str:
        """The name as CQL text, in quotes: a bare name may be a reserved word of some version."""
        return f"{quoted(self.keyspace)}.{quoted(self.name)}"

    def __str__(self) -> str:
        """For people, on one line: what cannot be printed is escaped."""
        name = f"{self.keyspace}.{self.name}"
        return name if name.isprintable() else repr(name)[1:-1]
