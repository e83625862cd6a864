"""The style of reports: light and dark, for wide screens and phones.

The contrast ratio to the background is at least 4.5 for text and at least 3 for lines. Lines differ
in color; from the ninth line on, their dash patterns differ too.
"""

from __future__ import annotations

_LIGHT = "#0b5fb0 #b3400a #1f7a3d #7a3fb0 #8a6a00 #0a7480 #a3285f #55606a".split()
_DARK = "#7ab8ff #ffab73 #7fd99a #cfa8ff #f0d060 #6fdbe6 #ff9cc4 #c0c8d0".split()


def _colours(values: list[str]) -> str:
    return "".join(f"--s{number}:{value};" for number, value in enumerate(values))


_LINES = "".join(f".s{number}{{stroke:var(--s{number})}}" for number in range(len(_LIGHT)))

STYLE = (
    f":root{{--page:#fff;--ink:#1c1f23;--soft:#555b63;--line:#c9ced4;{_colours(_LIGHT)}}}"
    "@media (prefers-color-scheme:dark){"
    f":root{{--page:#15181c;--ink:#e8eaed;--soft:#a9b0b8;--line:#454b53;{_colours(_DARK)}}}}}"
    "body{margin:0;background:var(--page);color:var(--ink);"
    "font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}"
    "main{max-width:60rem;margin:0 auto;padding:1rem}"
    "h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem}"
    ".scrolled{overflow-x:auto}table{border-collapse:collapse;overflow-wrap:normal}"
    "th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line);"
    "white-space:nowrap;font-variant-numeric:tabular-nums}"
    "figure{margin:1.5rem 0}figcaption{font-weight:600;margin-bottom:.5rem}"
    ".plot{display:grid;grid-template-columns:6.5rem 1fr;height:12rem}"
    ".plot svg{width:100%;height:100%;min-width:0;overflow:visible}"
    ".y{display:flex;flex-direction:column;justify-content:space-between;text-align:right;"
    "white-space:nowrap;padding-right:.5rem;margin:-.6rem 0;color:var(--soft);font-size:.85rem;"
    "line-height:1.2rem}"
    ".x{display:flex;justify-content:space-between;gap:1rem;margin:.5rem 0 0 6.5rem;"
    "color:var(--soft);font-size:.85rem}"
    ".x time:nth-child(2){text-align:center}.x time:last-child{text-align:right}"
    "path{fill:none;stroke-width:2px;stroke-linecap:round;vector-effect:non-scaling-stroke}"
    f".grid{{stroke:var(--line);stroke-width:1px}}{_LINES}"
    ".d1{stroke-dasharray:8 5}.d2{stroke-dasharray:2 5}"
    ".legend{list-style:none;padding:0;margin:.5rem 0 0 6.5rem;font-size:.9rem}"
    ".legend li{display:flex;gap:.5rem;align-items:baseline}.legend svg{flex:none}"
    "@media (max-width:30rem){.legend{margin-left:0}.plot{grid-template-columns:4.5rem 1fr}"
    ".x{margin-left:4.5rem}.x time:nth-child(2){display:none}}"
)
