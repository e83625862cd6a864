"""An MkDocs hook that turns links to other files of the project into links to its repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Replace relative links that point outside the docs folder. MkDocs handles all others."""
    docs = Path(config.docs_dir)
    folder = (docs / page.file.src_uri).parent

    def replace(link: re.Match[str]) -> str:
        target = (folder / link[1]).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return link[0]
        kind = "tree" if target.is_dir() else "blob"
        path = target.relative_to(docs.parent)
        return f"]({config.repo_url}/{kind}/main/{path}{link[2] or ''})"

    return _LINK.sub(replace, markdown)
