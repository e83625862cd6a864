"""Random CQL statements, derived from the embedded server's grammar."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from attrs import field, frozen
from lark import Lark
from lark.grammar import NonTerminal, Rule, Symbol, Terminal

from cdc_reader.testing.embedded.grammar.parser import build_parser

_DEPTH = 14
"""From this depth on, the shortest alternative is chosen."""

_NAMES = (
    "f t c k pk ck st v w m s l u n d a b x y int text bigint list map set frozen tuple counter "
    "uuid timeuuid duration blob count max min avg sum writetime ttl now totimestamp mintimeuuid "
    "currentdate blobasint textasblob intasblob cdc replication tablets comment class enabled "
    "default_time_to_live compaction system local peers keyspace_name table_name key missing"
).split()
_TABLES = "f.t f.t f.t f.k f.c f.t_scylla_cdc_log t system.local f.missing".split()
_TYPES = "int text bigint list<int> map<text,int> set<int> frozen<u> u uuid".split()
_TERMINALS: Mapping[str, tuple[str, ...]] = {
    "QUOTED": ('"cdc$time"', '"cdc$stream_id"', '"cdc$operation"', '"Pk"', '"full"', '"a""b"'),
    "STRING": ("''", "'x'", "'{}'", "'{\"pk\": 1, \"ck\": 2}'", "'2026-11-22'", "'SimpleStrategy'"),
    "DOLLARS": ("$$x$$", "$$$$"),
    "UUID": ("123e4567-e89b-42d3-a456-426614174000", "8f1a3c00-c7a2-11f1-9b0e-0242ac120002"),
    "HEX": ("0x", "0x00", "0xcafe"),
    "DURATION": ("1mo2d3ns", "-5h", "P1Y"),
    "FLOAT": ("0.5", "-1e300", "nan", "1."),
    "INTEGER": ("0", "1", "2", "-1", "100", "2147483648", "9223372036854775807", f"-{10**20}"),
    "BOOLEAN": ("true", "FALSE"),
    "ELEMENT": ("table", "type", "materialized view"),
    "EVERYTHING": ("schema", "cluster", "full schema", "tables", "keyspaces"),
    "_DESCRIBE": ("describe", "desc"),
    "_KEYSPACE": ("keyspace",),
    "_TABLE": ("table",),
}  # fmt: skip


@frozen(slots=False)
class Statements:
    """Derives statements from the grammar. `source` makes all choices.

    Most names, tables and types come from one schema, so that many statements are accepted.
    """

    source: random.Random
    _parser: Lark = field(factory=build_parser)

    def next(self) -> str:
        """Return the next statement."""
        return " ".join(self._derived(NonTerminal("statement"), 0))

    def _derived(self, symbol: Symbol, depth: int) -> Iterator[str]:
        if isinstance(symbol, Terminal):
            yield self._word(symbol.name)
            return
        if (draw := self._known.get(symbol.name)) and self.source.random() < 0.9:
            yield draw()
            return
        choices = self._rules[symbol.name]
        is_deep = depth >= _DEPTH
        rule = min(choices, key=self._height) if is_deep else self.source.choice(choices)
        for part in rule.expansion:
            yield from self._derived(part, depth + 1)

    def _word(self, terminal: str) -> str:
        if terminal in _TERMINALS:
            return self.source.choice(_TERMINALS[terminal])
        if terminal == "IDENT":
            return self.source.choice(_NAMES)
        return self._keywords[terminal]

    @cached_property
    def _known(self) -> Mapping[str, Callable[[], str]]:
        choice = self.source.choice
        return {"table_name": lambda: choice(_TABLES), "type": lambda: choice(_TYPES)}

    @cached_property
    def _keywords(self) -> Mapping[str, str]:
        patterns = {each.name: each.pattern.value for each in self._parser.terminals}
        return {name: value.removesuffix(r"\b") for name, value in patterns.items()}

    @cached_property
    def _rules(self) -> Mapping[str, list[Rule]]:
        found: dict[str, list[Rule]] = {}
        for rule in self._parser.rules:
            found.setdefault(rule.origin.name, []).append(rule)
        return found

    @cached_property
    def _heights(self) -> Mapping[str, int]:
        """The depth of the shortest derivation of each symbol."""
        heights = dict.fromkeys(self._rules, _DEPTH * 100)
        is_changed = True
        while is_changed:
            is_changed = False
            for name, rules in self._rules.items():
                lowest = 1 + min(self._tallest(rule, heights) for rule in rules)
                if lowest < heights[name]:
                    heights[name], is_changed = lowest, True
        return heights

    def _height(self, rule: Rule) -> int:
        return self._tallest(rule, self._heights)

    @staticmethod
    def _tallest(rule: Rule, heights: Mapping[str, int]) -> int:
        return max((heights.get(part.name, 0) for part in rule.expansion), default=0)
