"""An MkDocs hook that fixes the theme's pages for keyboards, screen readers and privacy."""

from __future__ import annotations

import re

_EMPTY_HEADING = re.compile(r"<th[^>]*></th>")
_FIRST_CELL = re.compile(r"<tr>\s*<td[^>]*>.*?</td>", re.DOTALL)
_NAME = re.compile(r"<code>([^<\s]+)</code>")
_BOX = re.compile(r'<pre tabindex="0">(?=(?:<[^>]*>)*\+-)')

_REPLACEMENTS = (
    # For a repository on GitHub, the theme's script would query api.github.com for its stars.
    (' class="md-source" data-md-component="source"', ' class="md-source"'),
    (
        'data-md-component="search" role="dialog"',
        'data-md-component="search" role="dialog" aria-label="Search"',
    ),
    # Content wider than the page can be scrolled by keyboard only if it can receive focus.
    ("<pre><span></span><code>", '<pre tabindex="0"><span></span><code>'),
    ("<table>", '<div class="scrolled" tabindex="0"><table>'),
    ("</table>", "</table></div>"),
)


def on_post_page(output: str, **_: object) -> str:
    """Return the page with the corrections of this module."""
    for found, mended in _REPLACEMENTS:
        output = output.replace(found, mended)
    output = _FIRST_CELL.sub(_with_whole_names, output)
    # Narrow screens wrap the lines of examples, except those of tables that are drawn as text.
    output = _BOX.sub('<pre tabindex="0" class="drawn">', output)
    return _EMPTY_HEADING.sub("<td></td>", output)


def _with_whole_names(cell: re.Match[str]) -> str:
    """Mark the names in the first cell of a row, which are never broken."""
    return _NAME.sub(r'<code class="whole">\1</code>', cell[0])
