"""What a benchmark finds: a value, what a rival did in its place, and what is wanted of both."""

from __future__ import annotations

from typing import Any

from attrs import frozen


@frozen
class Figure:
    """A measured value in `unit`; the `rival` is in the same unit, and `against` says who it is.

    `ratio` is how many times the rival's the value is. `at_least` and `at_most` bound the ratio
    if there is a rival, the value if there is none. A figure with a `cell`, row and column, is
    shown in a table of its kind.
    """

    name: str
    value: float
    unit: str
    rival: float | None = None
    against: str = ""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""
    cell: tuple[str, str] | None = None

    @property
    def ratio(self) -> float | None:
        return None if self.rival is None else self.value / self.rival

    @property
    def target(self) -> str:
        """The bounds as text."""
        low = "" if self.at_least is None else f"≥ {self.at_least:g}"
        high = "" if self.at_most is None else f"≤ {self.at_most:g}"
        return f"{low}{high}"

    @property
    def is_met(self) -> bool:
        """Whether the target is reached; one that is not set always is."""
        judged = self.value if self.ratio is None else self.ratio
        low, high = self.at_least, self.at_most
        return (low is None or judged >= low) and (high is None or judged <= high)

    def to_json(self) -> dict[str, Any]:
        """All of it, in JSON's terms."""
        return {
            "value": self.value,
            "unit": self.unit,
            "rival": self.rival,
            "ratio": self.ratio,
            "against": self.against,
            "target": self.target,
            "met": self.is_met,
            "note": self.note,
        }
