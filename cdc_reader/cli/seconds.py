"""The type of options whose value is a number of seconds."""

from __future__ import annotations

from math import isnan
from typing import Any

import click

YEARS = 1e9
"""About thirty years, in seconds, which every timer and clock can represent."""


class Seconds(click.FloatRange):
    """A number of seconds; unlike `click.FloatRange`, it rejects NaN."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds: float = super().convert(value, param, ctx)
        return self.fail(f"{value!r} is not a number", param, ctx) if isnan(seconds) else seconds
