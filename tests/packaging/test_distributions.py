"""The contents of a wheel and of a source distribution."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_wheel_holds_both_packages_with_their_types(wheel: Path) -> None:
    """A wheel contains two typed packages and the license, and nothing else at the top level."""
    names = zipfile.ZipFile(wheel).namelist()
    name, version, _ = wheel.name.split("-", 2)
    information = f"{name}-{version}.dist-info"
    tops = {name.split("/")[0] for name in names}
    assert tops == {"cdc_reader", "pyspark_scylla_cdc", information}
    assert {"cdc_reader/py.typed", "pyspark_scylla_cdc/py.typed"} <= set(names)
    assert f"{information}/licenses/LICENSE" in names


@pytest.mark.slow
def test_a_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    """A wheel contains all files of the packages, including grammars and other data files."""
    names = set(zipfile.ZipFile(wheel).namelist())
    for source in (ROOT, ROOT / "connectors"):
        for package in ("cdc_reader", "pyspark_scylla_cdc"):
            files = (path for path in (source / package).rglob("*") if path.is_file())
            # A kernel beside its sources belongs to an editable installation.
            files = (f for f in files if "__pycache__" not in f.parts and f.suffix != ".so")
            wanted = {str(f.relative_to(source)) for f in files}
            assert wanted <= names


@pytest.mark.slow
def test_the_description_has_links_that_hold_anywhere(wheel: Path) -> None:
    """A relative link in the README becomes a link to the repository, at this version's tag."""
    archive = zipfile.ZipFile(wheel)
    [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    description = archive.read(metadata).decode()
    version = wheel.name.split("-")[1]
    links = re.findall(r"\]\(([^)]+)\)", description)
    assert all(link.startswith("https://") for link in links), links
    assert f"/blob/v{version}/docs/index.md" in description
    assert f"/raw/v{version}/docs/images/demo.svg" in description


def test_a_source_distribution_can_be_tested_and_built(sdist: Path) -> None:
    """The distribution contains the files that packagers need to run the same checks as CI."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "constraints.txt"}
    wanted |= {"cdc_reader/py.typed", "connectors/pyspark_scylla_cdc/py.typed"}
    wanted |= {"tests/test_exports.py", "scripts/java-home", "docs/index.md", "hatch_build.py"}
    wanted |= {"cdc_reader/decoding/_native.pyx", "cdc_reader/decoding/native/page.pxi"}
    assert wanted <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(".venv")]
