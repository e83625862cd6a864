"""Draws benchmark results as an SVG: bars on a logarithmic scale, with a mark at each target."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, BAR, TOP = 860, 190, 230, 26, 56
LOWEST, HIGHEST = 0.1, 100.0
_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 }
  .quiet { fill: #6e7781 }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .even { stroke: #6e7781; stroke-width: 1 }
  .bar { fill: #1a7f8c }
  .missed { fill: #c4612d }
  .target { stroke: #24292f; stroke-width: 2 }
"""


def chart(results: Mapping[str, Any]) -> str:
    """Draw the ratios in `results` (the contents of ``build/bench.json``) as an SVG."""
    shown = [
        (name, result)
        for name, result in results.items()
        if isinstance(result, dict) and result.get("ratio") is not None
    ]
    height = TOP + BAR * len(shown) + 34
    parts = [
        *_frame(height),
        *(part for at, found in enumerate(shown) for part in _bar(at, *found)),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"<title>The result of each benchmark, relative to its baseline</title>\n"
        f"<style>{_STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _frame(height: int) -> Iterator[str]:
    yield f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    yield '<text class="title" x="12" y="24">Ratio to the baseline, log scale</text>'
    for mark in (0.1, 0.3, 1, 3, 10, 30, 100):
        kind = "even" if mark == 1 else "grid"
        x = _x(mark)
        yield f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 30}"/>'
        place = f'x="{x:.1f}" y="{height - 12}" text-anchor="middle"'
        yield f'<text class="quiet" {place}>{mark:g}</text>'


def _bar(at: int, name: str, result: Mapping[str, Any]) -> Iterator[str]:
    """Draw a bar from 1 to the ratio. Whether a higher ratio is better depends on the benchmark."""
    y, ratio = TOP + at * BAR, result["ratio"]
    low, high = sorted((_x(1), _x(ratio)))
    kind = "bar" if result["met"] else "missed"
    yield f'<text x="{LEFT - 10}" y="{y + 14}" text-anchor="end">{escape(name)}</text>'
    yield (
        f'<rect class="{kind}" x="{low:.1f}" y="{y + 2}" width="{max(high - low, 1):.1f}" '
        f'height="{BAR - 9}"/>'
    )
    if wanted := result["target"].lstrip("≥≤ "):
        x = _x(float(wanted))
        yield f'<line class="target" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + BAR - 5}"/>'
    beside = f"{ratio:.3g} of {result['against']}"
    yield f'<text class="quiet" x="{WIDTH - RIGHT + 8}" y="{y + 14}">{escape(beside[:40])}</text>'


def _x(ratio: float) -> float:
    share = math.log(min(max(ratio, LOWEST), HIGHEST) / LOWEST) / math.log(HIGHEST / LOWEST)
    return LEFT + share * (WIDTH - LEFT - RIGHT)
