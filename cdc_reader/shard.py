"""Shards: one table split over several processes, by the token of the streams."""

from __future__ import annotations

import re
from typing import Self

from attrs import frozen

from cdc_reader.errors import ConfigurationError

MIN_TOKEN, MAX_TOKEN = -(1 << 63), (1 << 63) - 1


@frozen
class Shard:
    """The `number`-th (from 1) of `count` equal parts of the ring: the tokens in (start, end].

    Every stream of every generation is in one shard. The lowest token of all, which no
    stream has, begins the ring. When a new generation begins, a few base rows come to
    streams of another shard: between processes their changes are not kept in order.
    """

    number: int = 1
    count: int = 1

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise ConfigurationError("shard", str(self), "give it as '1/4' to '4/4'")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shard that `text`, such as ``2/4``, names; ConfigurationError if it names none."""
        if not (parts := re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)):
            raise ConfigurationError("shard", text, "give it as '1/4' to '4/4'")
        return cls(int(parts[1]), int(parts[2]))

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
