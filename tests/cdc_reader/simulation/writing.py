"""Random statements on ks.t. Each writes a unique number to the columns that it sets."""

from __future__ import annotations

import random

from cdc_reader.testing.embedded.topology.refusals import LEEWAY_US

_KEYS, _ROWS = 6, 4


class Writer:
    """A source of random statements, which set columns in `columns` and fields in `fields`."""

    def __init__(self, rng: random.Random) -> None:
        self.columns = ["v"]
        self.fields = ["f0"]
        self._rng = rng
        self._number = 0

    def statement(self, now: int, oldest: int) -> str:
        """Return a random statement. Its timestamp, if any, is not before `oldest` (in µs)."""
        at = self._timestamp(now, oldest)
        if self._rng.random() < 0.15:
            parts = "; ".join(self._modification("") for _ in range(self._rng.randint(2, 4)))
            return f"BEGIN {self._rng.choice(['', 'UNLOGGED '])}BATCH {at}{parts}; APPLY BATCH"
        return self._modification(at)

    def _timestamp(self, now: int, oldest: int) -> str:
        match self._rng.choices(["none", "near", "past"], [60, 30, 10])[0]:
            case "none":
                return ""
            case "near":
                at = now + self._rng.randint(-LEEWAY_US, LEEWAY_US)
            case _:
                at = self._rng.randint(min(oldest, now), now)
        return f"USING TIMESTAMP {at} "

    def _modification(self, using: str) -> str:
        self._number += 1
        p, c = self._rng.randrange(_KEYS), self._rng.randrange(_ROWS)
        row = f"p = {p} AND c = {c}"
        column = self._rng.choice(self.columns)
        fields = ", ".join(f"{name}: {self._number}" for name in self.fields)
        kinds = {
            self._insert(p, c, using): 8,
            f"UPDATE ks.t {using}SET {column} = {self._number} WHERE {row}": 4,
            f"UPDATE ks.t {using}SET u = {{{fields}}} WHERE {row}": 3,
            f"UPDATE ks.t {using}SET s = {self._number} WHERE p = {p}": 2,
            f"DELETE FROM ks.t {using}WHERE {row}": 2,
            f"DELETE FROM ks.t {using}WHERE p = {p} AND c >= {c} AND c < {c + 2}": 2,
            f"DELETE FROM ks.t {using}WHERE p = {p}": 1,
        }
        return self._rng.choices(list(kinds), list(kinds.values()))[0]

    def _insert(self, p: int, c: int, using: str) -> str:
        names = ", ".join(["p", "c", *self.columns])
        values = ", ".join(map(str, [p, c, *[self._number] * len(self.columns)]))
        return f"INSERT INTO ks.t ({names}) VALUES ({values}) {using}".strip()
