"""Prints the changelog of one release, if its tag, the version and the changelog agree.

``python -m scripts.release_notes v0.1.0`` prints the section ``[0.1.0]`` of the changelog. It
fails, with one line that says why, unless `pyproject.toml` has that version, the section has a date
and a text, and ``[Unreleased]`` is empty.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
_HEADING = re.compile(r"^## \[([^\]]+)\](.*)\n", re.MULTILINE)
_DATE = re.compile(r" - \d{4}-\d{2}-\d{2}")


class NotReadyError(Exception):
    """The release cannot be made. The message is one line that says why."""


def notes(root: Path, tag: str) -> str:
    """Return the text below the heading of a release.

    Raises:
        NotReadyError: if tag, version and changelog do not agree.
    """
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    if tag != f"v{version}":
        raise NotReadyError(
            f"the tag is {tag!r}, but pyproject.toml has version {version}: tag v{version}"
        )
    sections = _sections((root / "CHANGELOG.md").read_text())
    if version not in sections:
        raise NotReadyError(f"CHANGELOG.md has no section [{version}]: rename [Unreleased]")
    date, text = sections[version]
    if not _DATE.fullmatch(date):
        raise NotReadyError(
            f"the heading of [{version}] in CHANGELOG.md ends with {date!r}: "
            "end it with the date, as in ' - 2027-01-31'"
        )
    if not text:
        raise NotReadyError(f"the section [{version}] of CHANGELOG.md is empty: say what changed")
    if sections.get("Unreleased", ("", ""))[1]:
        raise NotReadyError(
            f"CHANGELOG.md has entries under [Unreleased]: move them to [{version}]"
        )
    return text


def _sections(changelog: str) -> dict[str, tuple[str, str]]:
    """Return, by version, the rest of each heading and the text below it."""
    _, *parts = _HEADING.split(changelog)
    return {
        version: (date, text.strip())
        for version, date, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


def main(arguments: list[str]) -> None:
    """Print the notes of the tag, or exit with the reason why there are none."""
    if len(arguments) != 1:
        sys.exit("usage: python -m scripts.release_notes TAG")
    try:
        sys.stdout.write(f"{notes(ROOT, *arguments)}\n")
    except NotReadyError as reason:
        sys.exit(str(reason))


if __name__ == "__main__":
    main(sys.argv[1:])
