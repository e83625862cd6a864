"""The hooks of the documentation site: links to the repository, and corrections to the theme."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from scripts.site_links import on_page_markdown
from scripts.site_markup import on_post_page

ROOT = Path(__file__).parents[2]
CONFIG = SimpleNamespace(docs_dir=str(ROOT / "docs"), repo_url="https://example.com/project")
PAGE = SimpleNamespace(file=SimpleNamespace(src_uri="howto/monitor-a-stream.md"))


def links(markdown: str) -> str:
    """Return the text of a how-to page as MkDocs receives it."""
    return on_page_markdown(markdown, page=PAGE, config=CONFIG)


def test_links_out_of_the_pages_lead_to_the_repository() -> None:
    """Links to files outside the pages lead to the files' addresses in the repository."""
    assert (
        links("[a](../../CHANGELOG.md)")
        == "[a](https://example.com/project/blob/main/CHANGELOG.md)"
    )
    assert links("[a](../../examples)") == "[a](https://example.com/project/tree/main/examples)"


def test_other_links_stay() -> None:
    """Links between pages, and broken links, are left unchanged for MkDocs to check."""
    for link in ("[a](../reference/tls.md#names)", "[a](../../missing.md)", "[a](https://a.b)"):
        assert links(link) == link


def test_a_page_asks_no_other_server() -> None:
    """Pages query no other server, so the theme's component that queries GitHub is removed."""
    page = '<a href="x" class="md-source" data-md-component="source">'
    assert on_post_page(page, config=None) == '<a href="x" class="md-source">'


def test_blocks_and_the_search_can_be_reached_without_a_mouse() -> None:
    """Scrollable code and tables can be focused, and the search dialog has a label."""
    assert on_post_page("<pre><span></span><code>a") == '<pre tabindex="0"><span></span><code>a'
    table = '<div class="scrolled" tabindex="0"><table>a</table></div>'
    assert on_post_page("<table>a</table>") == table
    search = '<div class="md-search" data-md-component="search" role="dialog">'
    assert 'aria-label="Search"' in on_post_page(search)


def test_an_empty_cell_is_no_heading() -> None:
    """An empty table heading becomes a plain cell, because screen readers cannot name it."""
    assert on_post_page('<th style="a"></th><th>b</th>') == "<td></td><th>b</th>"
