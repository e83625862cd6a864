from __future__ import annotations

from pathlib import Path

import pytest

from scripts.release_notes import NotReadyError, main, notes

CHANGELOG = """\
# Changelog

## [Unreleased]
{unreleased}
## [1.2.0]{date}

{text}

## [1.1.0] - 2026-01-02

### Fixed

- An older thing.
"""
ADDED = "### Added\n\n- A thing."


def project(
    folder: Path, *, unreleased: str = "", date: str = " - 2027-01-31", text: str = ADDED
) -> Path:
    """Create a project of version 1.2.0 with this changelog."""
    (folder / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    changelog = CHANGELOG.format(unreleased=unreleased, date=date, text=text)
    (folder / "CHANGELOG.md").write_text(changelog)
    return folder


def test_the_notes_are_the_section_of_the_version(tmp_path: Path) -> None:
    """The notes are the version's section of the changelog, without the heading."""
    assert notes(project(tmp_path), "v1.2.0") == ADDED


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"unreleased": "\n- Another thing.\n"}, r"entries under \[Unreleased\]: move them"),
        ({"date": ""}, r"ends with '': end it with the date"),
        ({"date": " - soon"}, r"ends with ' - soon'"),
        ({"text": ""}, "empty: say what changed"),
    ],
)
def test_a_changelog_that_is_not_ready_is_refused(
    changed: dict[str, str], reason: str, tmp_path: Path
) -> None:
    """A changelog that is not ready raises an error that states the remedy."""
    with pytest.raises(NotReadyError, match=reason):
        notes(project(tmp_path, **changed), "v1.2.0")


@pytest.mark.parametrize("tag", ["v1.2.1", "1.2.0", "v1.1.0", ""])
def test_a_tag_of_another_version_is_refused(tag: str, tmp_path: Path) -> None:
    """A tag of an older or newer version, or one that is not a release tag, is rejected."""
    with pytest.raises(NotReadyError, match=r"pyproject.toml has version 1\.2\.0"):
        notes(project(tmp_path), tag)


def test_a_version_that_the_changelog_lacks_is_refused(tmp_path: Path) -> None:
    """A version whose entries are still under Unreleased is rejected."""
    project(tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n- A thing.\n")
    with pytest.raises(NotReadyError, match=r"no section \[1\.2\.0\]: rename"):
        notes(tmp_path, "v1.2.0")


@pytest.mark.parametrize(
    ("arguments", "reason"), [(["v0.0.0"], "the tag is 'v0.0.0'"), ([], "usage: ")]
)
def test_the_command_fails_with_one_line(arguments: list[str], reason: str) -> None:
    """The command fails with one line and a status other than 0."""
    with pytest.raises(SystemExit, match=f"^{reason}[^\n]*$"):
        main(arguments)
