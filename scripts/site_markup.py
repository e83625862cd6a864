"""An MkDocs hook that fixes the theme's pages for keyboards, screen readers and privacy."""

from __future__ import annotations

import re

_EMPTY_HEADING = re.compile(r"<th[^>]*></th>")
_FIRST_CELL = re.compile(r"<tr>\s*<td[^>]*>.*?</td>", re.DOTALL)
_TAG_OR_WORD = re.compile(r"<[^>]*>|[^\s<]*[-=\[][^\s<]*")
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
    # The lines of examples are wrapped, except those of tables that are drawn as text.
    output = _BOX.sub('<pre tabindex="0" class="drawn">', output)
    return _EMPTY_HEADING.sub("<td></td>", output)


def _with_whole_names(cell: re.Match[str]) -> str:
    """Mark the words in the first cell of a row at whose signs a browser would break them."""
    return _TAG_OR_WORD.sub(_whole, cell[0])


def _whole(found: re.Match[str]) -> str:
    text = found[0]
    return text if text.startswith("<") else f'<span class="whole">{text}</span>'
