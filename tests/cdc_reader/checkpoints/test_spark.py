"""Reading a Spark query's position from its checkpoint files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cdc_reader.checkpoints.spark import SparkCheckpoint
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError
from cdc_reader.reading.cursor import Checkpoint

TABLE = TableName("ks", "t")
ID = UUID("f3b1a6c0-c7f0-11f0-8000-0123456789ab")
QUERY = "7d4bd4f0-4f4b-4f0e-9d52-0d6f6f1c7a55"


def checkpoint(
    at: Path, offsets: dict[int, list[str]], *, done: int = -1, version: str = "v1"
) -> SparkCheckpoint:
    """Write a checkpointLocation whose micro-batches up to `done` are committed."""
    (at / "offsets").mkdir()
    (at / "commits").mkdir()
    (at / "metadata").write_text(json.dumps({"id": QUERY}))
    for number, lines in offsets.items():
        text = "\n".join([version, '{"batchWatermarkMs":0}', *lines])
        (at / "offsets" / str(number)).write_text(text)
        (at / "offsets" / f".{number}.crc").write_bytes(b"crc")
        if number <= done:
            (at / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return SparkCheckpoint(at, TABLE)


def offset(position: int, **more: Any) -> str:
    """Return an offset of the data source, as JSON."""
    return json.dumps({"version": 1, "position": position, "table": "ks.t", **more})


def position(found: SparkCheckpoint) -> int | None:
    """Return the position in the checkpoint, or None if it contains no position."""
    names = found.names()
    if not names:
        return None
    assert names == [CheckpointName(QUERY, TABLE)]
    kept = found.load(names[0])
    assert kept is not None
    assert kept == Checkpoint(kept.position, table_id=kept.table_id)
    return kept.position


def test_the_position_is_that_of_the_last_committed_micro_batch(tmp_path: Path) -> None:
    """The committed micro-batch with the highest number determines the position."""
    offsets = {number: [offset(number * 10)] for number in range(8, 13)}
    assert position(checkpoint(tmp_path, offsets, done=11)) == 110


def test_before_the_first_commit_the_position_is_the_start(tmp_path: Path) -> None:
    """Before the first commit, the position is the start that the first offset contains."""
    assert position(checkpoint(tmp_path, {0: [offset(5, began=2)]})) == 2


def test_after_the_first_commit_the_start_is_ignored(tmp_path: Path) -> None:
    """After the first commit, the position is the end of a micro-batch, not the query's start."""
    first = offset(5, began=2)
    assert position(checkpoint(tmp_path, {0: [first], 1: [offset(9)]}, done=0)) == 5


def test_a_folder_with_several_checkpoints(tmp_path: Path) -> None:
    """The folder of a mirror of several tables has the checkpoint of each; others are named."""
    places = [tmp_path / "ks" / name for name in ("t", "u")]
    for place in places:
        place.mkdir(parents=True)
        checkpoint(place, {0: [offset(5)]})
    assert [name.table for name in SparkCheckpoint(tmp_path, TABLE).names()] == [TABLE]
    told = (
        f"{tmp_path} has no checkpoint of ks.v, but those of other copies: {places[0]}, {places[1]}"
    )
    with pytest.raises(CheckpointError, match=f"^{re.escape(told)}$"):
        SparkCheckpoint(tmp_path, TableName("ks", "v")).names()
    told = f"{tmp_path / 'ks'} has no checkpoint of ks.v, but those of other copies: {places[0]}"
    with pytest.raises(CheckpointError, match=f"^{re.escape(told)}"):
        SparkCheckpoint(tmp_path / "ks", TableName("ks", "v")).names()


def test_the_folder_of_a_copy(tmp_path: Path) -> None:
    """The error for the folder of a copy names its checkpoint."""
    (tmp_path / "t").mkdir()
    (tmp_path / "t.checkpoint").mkdir()
    told = rf"as Spark writes them; did you mean {re.escape(str(tmp_path))}/t\.checkpoint\?$"
    with pytest.raises(CheckpointError, match=told):
        SparkCheckpoint(tmp_path / "t", TABLE).names()


def test_a_query_that_has_not_begun_has_no_position(tmp_path: Path) -> None:
    """A query without offsets has no position.

    Spark creates the checkpoint's directories before it writes the first offset.
    """
    assert position(checkpoint(tmp_path, {})) is None


@pytest.mark.parametrize("more", [{"id": str(ID)}, {"snapshot": "pending", "token": -5}])
def test_offsets_are_read(tmp_path: Path, more: dict[str, Any]) -> None:
    """Offsets are read, with or without a pending snapshot."""
    assert position(checkpoint(tmp_path, {0: [offset(7, **more)]}, done=0)) == 7


def test_offsets_of_other_sources_and_tables_are_left_out(tmp_path: Path) -> None:
    """Offsets of other sources and other tables are ignored."""
    others = [
        '{"topic":{"0":1}}',
        "41",
        "-",
        "not JSON",
        offset(1, table="ks.other"),
        offset(2, table="ks.other", version=9),
    ]
    assert position(checkpoint(tmp_path, {0: others}, done=0)) is None
    (tmp_path / "again").mkdir()
    lines = [*others, offset(9), offset(8)]
    assert position(checkpoint(tmp_path / "again", {0: lines}, done=0)) == 8


def test_offsets_of_another_version_are_refused(tmp_path: Path) -> None:
    """Offsets of another version raise an error, so that no check takes them for none."""
    with pytest.raises(CheckpointError, match="found version 9, expected 1; use the version"):
        position(checkpoint(tmp_path, {0: [offset(2, version=9)]}, done=0))


def test_named_sources_are_read(tmp_path: Path) -> None:
    """In version 2 of the offset file, each line begins with the name of its source."""
    lines = [f"orders:{offset(6)}", "other:-"]
    assert position(checkpoint(tmp_path, {0: lines}, done=0, version="v2")) == 6


@pytest.mark.parametrize("damage", ["offsets", "file", "metadata", "first", "lines", "cut"])
def test_other_directories_are_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    """The error for a directory that is not a checkpoint says what was expected there."""
    found = checkpoint(tmp_path, {0: [offset(1)]}, done=0)
    if damage == "offsets":
        (tmp_path / "offsets").rename(tmp_path / "gone")
    elif damage == "file":
        (tmp_path / "offsets").rename(tmp_path / "gone")
        (tmp_path / "offsets").touch()
    elif damage == "metadata":
        (tmp_path / "metadata").write_text("{}")
    elif damage == "first":
        (tmp_path / "offsets" / "0").write_text("v1")
    elif damage == "lines":
        (tmp_path / "offsets" / "0").write_text("v1\n{}\n")
    else:
        text = (tmp_path / "offsets" / "0").read_text()
        (tmp_path / "offsets" / "0").write_text(text[:-5])
    with pytest.raises(CheckpointError, match=r"is not the checkpointLocation of .*: expected a"):
        found.names()
