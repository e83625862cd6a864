"""Commits to a Delta table with deltalake."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from cdc_reader.copies.columns import CopyColumns
from cdc_reader.copies.delta import DeltaFiles, Remedies
from cdc_reader.copies.merging import Merge
from cdc_reader.copies.row_state import TYPE
from cdc_reader.errors import ConfigurationError, SchemaError

COLUMNS = CopyColumns(["p", "d"], ["p"], [], [], "_state")
REMEDIES = Remedies(install="install it", table="use another tool", column="leave it out")
SCHEMA = pa.schema([("p", pa.int32()), ("d", pa.date32()), ("_state", TYPE)])
FAR = 100_000_000


def created(path: Path) -> DeltaFiles:
    """Return a table with the row 1."""
    files = DeltaFiles(str(path), REMEDIES)
    files.create(files.deltalake.Schema.from_arrow(SCHEMA), {})
    row = pa.table({"p": [1], "d": [None], "_state": [None]}, SCHEMA)
    files.append(files.table(), row, "app", 1)
    return files


def updates(kind: str, day: int | None = None) -> pa.Table:
    """Return an update of row 2."""
    row = pa.table({"p": [2], "d": [day], "_state": ["9999999999 0000000000 --"]}, SCHEMA)
    own = {COLUMNS.kind: pa.array([kind]), COLUMNS.flags["d"]: pa.array([True])}
    return pa.table({**dict(zip(row.schema.names, row.columns, strict=True)), **own})


@pytest.mark.parametrize("kind", ["delete", "upsert"])
def test_a_merge_that_changes_no_row_is_recorded(tmp_path: Path, kind: str) -> None:
    """Deltalake commits no merge without an effect, such as the delete of a missing row."""
    files = created(tmp_path / "copy")
    files.merge(files.table(), updates(kind), Merge(COLUMNS), "app", 2)
    assert files.table().transaction_version("app") == 2
    files.merge(files.table(), updates(kind).slice(0, 0), Merge(COLUMNS), "app", 3)
    assert files.table().transaction_version("app") == 3
    assert pa.table(files.table().to_pyarrow_table()).column("p").to_pylist() == [1]


def test_a_date_that_deltalake_cannot_write(tmp_path: Path) -> None:
    """The error says what to do, and nothing is written."""
    files = created(tmp_path / "copy")
    with pytest.raises(SchemaError, match=r"column d has a date outside .*: leave it out"):
        files.merge(files.table(), updates("replace", FAR), Merge(COLUMNS), "app", 2)
    assert files.table().transaction_version("app") == 1


def test_a_name_that_deltalake_cannot_quote(tmp_path: Path) -> None:
    """A backtick in a name, and paths that deltalake changes or cannot write, are refused."""
    with pytest.raises(ConfigurationError, match=r"column a`b has a backtick .*: leave it out"):
        created(tmp_path / "copy").refuse_backticks(["a", "a`b"])
    for part in ("%20", "a\\b", "[", "]", "|", "^"):
        with pytest.raises(ConfigurationError, match="deltalake changes backslashes"):
            DeltaFiles(f"{tmp_path}{part}", REMEDIES)
