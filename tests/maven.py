"""Artifacts of other projects, from Maven's repositories."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.locking import locked

BUILD = Path(__file__).parents[1] / "build"


class Unavailable(Exception):
    """The artifacts are not available here. The message says why."""


def jars(pom: Path, profile: str, **properties: str) -> list[Path]:
    """Return the artifacts of a profile of the POM, or raise Unavailable if they are missing."""
    name = "-".join([profile, *properties.values()])
    folder = BUILD / pom.stem / name
    with locked(folder):
        if not folder.exists():
            _download(pom, profile, properties, folder)
    return sorted(folder.glob("*.jar"))


def _download(pom: Path, profile: str, properties: dict[str, str], folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise Unavailable("no mvn on PATH: install Maven")
    given = [f"-D{name}={value}" for name, value in properties.items()]
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    command = ["mvn", "-q", "-B", "-f", str(pom), f"-P{profile}", *given, *goal]
    ran = subprocess.run(
        [*command, f"-DoutputDirectory={folder}"], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise Unavailable(f"Maven cannot get {profile} of {pom.name}")
