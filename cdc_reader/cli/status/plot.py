"""Draws values over time as inline SVG that needs no script and fits any width.

The drawing is stretched to the width of the page, so it contains no text: labels are HTML beside
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import count

from attrs import field, frozen

from cdc_reader._time import Micros
from cdc_reader.cli.status.readers import SECOND, duration_text

_WIDTH, _HEIGHT = 1000, 200
COLOURS, _DASHES = 8, 3
_DURATIONS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200)
"""Seconds at which an axis of durations may end; longer axes end at whole days."""
_DAY = 86_400


@frozen
class Unit:
    """The unit of an axis: `text` formats a value, and `top` returns the end of the axis.

    `top` takes the highest value that the axis must show.
    """

    text: Callable[[float], str]
    top: Callable[[float], float]


@frozen
class Series:
    """A named series of values, each (time in µs, value), in parts that are not connected.

    `summary` says in words what the drawing shows.
    """

    name: str
    parts: Sequence[Sequence[tuple[Micros, float]]]
    summary: str = ""

    @property
    def points(self) -> list[tuple[Micros, float]]:
        """The points of all parts."""
        return [point for part in self.parts for point in part]


@frozen
class Plot:
    """A figure of series over time; `number` makes its ids unique on the page."""

    title: str
    unit: Unit
    series: Sequence[Series]
    start: Micros
    end: Micros
    number: int = field(factory=count().__next__)

    def html(self) -> str:
        """Return the figure as HTML."""
        highest = max((value for of in self.series for _, value in of.points), default=0)
        top = self.unit.top(highest)
        labels = "".join(f"<span>{escape(self.unit.text(top * at))}</span>" for at in (1, 0.5, 0))
        middle = (self.start + self.end) // 2
        times = "".join(map(_time, (self.start, middle, self.end)))
        legend = "".join(
            f'<li class="{_style(at)}">{_key(at)}<span>{escape(of.name)}: {escape(of.summary)}'
            "</span></li>"
            for at, of in enumerate(self.series)
        )
        return (
            f"<figure><figcaption>{escape(self.title)}</figcaption>"
            f'<div class="plot"><div class="y" aria-hidden="true">{labels}</div>{self._svg(top)}'
            f'</div><div class="x">{times}</div><ul class="legend">{legend}</ul></figure>'
        )

    def _svg(self, top: float) -> str:
        name = f"plot{self.number}"
        summary = "; ".join(f"{of.name}: {of.summary}" for of in self.series)
        lines = "".join(
            f'<path class="{_style(at)}" d="{self._path(of, top)}"/>'
            for at, of in enumerate(self.series)
        )
        grid = "".join(f"M0 {y}H{_WIDTH}" for y in (0, _HEIGHT // 2, _HEIGHT))
        return (
            f'<svg role="img" aria-labelledby="{name}-title {name}-text" '
            f'viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none">'
            f'<title id="{name}-title">{escape(self.title)}</title>'
            f'<desc id="{name}-text">{escape(summary)}</desc>'
            f'<path class="grid" d="{grid}"/>{lines}</svg>'
        )

    def _path(self, series: Series, top: float) -> str:
        return "".join(self._line(part, top) for part in series.parts)

    def _line(self, part: Sequence[tuple[Micros, float]], top: float) -> str:
        length = max(1, self.end - self.start)
        places = [
            f"{(at - self.start) * _WIDTH / length:.1f} {_HEIGHT * (1 - value / top):.1f}"
            for at, value in part
        ]
        # A line of length zero has round ends, so it shows a single point as a dot.
        return f"M{'L'.join(places)}" if len(places) > 1 else f"M{places[0]}h0"


def _style(number: int) -> str:
    return f"s{number % COLOURS} d{number // COLOURS % _DASHES}"


def _key(number: int) -> str:
    """Return the sample of a series' line that the legend shows."""
    return (
        '<svg aria-hidden="true" viewBox="0 0 24 8" width="24" height="8">'
        f'<path class="{_style(number)}" d="M2 4H22"/></svg>'
    )


def _time(at: Micros) -> str:
    moment = datetime.fromtimestamp(at / SECOND, UTC)
    return f'<time datetime="{moment:%Y-%m-%dT%H:%M:%SZ}">{moment:%d %b %H:%M:%S}</time>'


def _top_duration(micros: float) -> float:
    seconds = micros / SECOND
    days = -(-seconds // _DAY) * _DAY
    return SECOND * next((nice for nice in _DURATIONS if nice >= seconds), days)


def _top_number(value: float) -> float:
    scale = 1.0
    while scale * 10 < value:
        scale *= 10
    return next(nice * scale for nice in (1, 2, 5, 10) if nice * scale >= value)


def _duration(micros: float) -> str:
    """Format a duration in one or two units; omit the second unit if it is zero."""
    number, unit, *rest = duration_text(round(micros)).split()
    return " ".join([number, unit, *(rest if rest and rest[0] != "0" else ())])


DURATION = Unit(_duration, _top_duration)
"""Durations in µs."""
NUMBER = Unit(lambda value: f"{value:,.10g}", _top_number)
"""Numbers such as rates."""
