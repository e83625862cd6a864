"""The result of a benchmark: a value, a rival's value, and the targets."""

from __future__ import annotations

from typing import Any

from attrs import frozen


@frozen
class Figure:
    """A measured `value`, and the value `rival` of a competitor, both in `unit`.

    `against` describes the competitor, and `ratio` is `value` divided by `rival`. `at_least` and
    `at_most` bound the ratio, or the value if there is no rival. A figure with a `cell` (row and
    column) is shown in a separate table.
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
        """True if the value or ratio is within its bounds, or if there are no bounds."""
        judged = self.value if self.ratio is None else self.ratio
        low, high = self.at_least, self.at_most
        return (low is None or judged >= low) and (high is None or judged <= high)

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as JSON values."""
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
