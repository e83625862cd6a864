"""Shards, which split one table's streams among several processes, by token."""

from __future__ import annotations

import re
from typing import Self

from attrs import frozen

from cdc_reader.errors import ConfigurationError, in_one_line

_MOST = 999_999
MIN_TOKEN, MAX_TOKEN = -(1 << 63), (1 << 63) - 1


@frozen
class Shard:
    """The `number`-th (from 1) of `count` equal parts of the ring: the tokens in (start, end].

    Every stream of every generation is in exactly one shard. The ring starts at the lowest token,
    which no stream has. When a new generation begins, a few base rows move to streams of another
    shard. Their changes may then be handled out of order, because two processes handle them.
    """

    number: int = 1
    count: int = 1

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.number <= self.count <= _MOST:
            given = "/".join(map(in_one_line, (self.number, self.count)))
            raise ConfigurationError("shard", given, "give it as '1/4' to '4/4'")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse text such as ``2/4``. Raises ConfigurationError if it is not a shard."""
        parts = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if parts is None:
            raise ConfigurationError("shard", text, "give it as '1/4' to '4/4'")
        return cls(int(parts[1]), int(parts[2]))

    @classmethod
    def of(cls, shard: str | Shard | None) -> Shard:
        """Convert text to a shard, and None to the whole ring; return a Shard unchanged."""
        if shard is None or isinstance(shard, Shard):
            return shard or cls()
        return cls.parse(shard)

    @property
    def start(self) -> int:
        return MIN_TOKEN + (self.number - 1) * (1 << 64) // self.count

    @property
    def end(self) -> int:
        return min(MAX_TOKEN, MIN_TOKEN + self.number * (1 << 64) // self.count)

    @property
    def is_whole(self) -> bool:
        return self.count == 1

    def __contains__(self, token: int) -> bool:
        return self.is_whole or self.start < token <= self.end

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"
