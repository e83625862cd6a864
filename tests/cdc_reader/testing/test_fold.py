"""Tests that applying a recorded log to an empty table reproduces the recorded table."""

import gzip
import json
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cdc_reader.cql.types import UserType, parse
from cdc_reader.testing.embedded.codec.order import sort_key
from cdc_reader.testing.embedded.schema.table import Column, Kind, Table
from tests.cdc_reader.testing.fold import Fold, select_all
from tests.recordings.comparison import Result

DATA = Path(__file__).parents[2] / "data"
U = UserType("ks", "u", (("x", parse("int")), ("y", parse("text"))))
BASE = Table(
    "ks",
    "t",
    UUID(int=1),
    (
        Column("pk", parse("int"), Kind.PARTITION_KEY, 0),
        Column("ck", parse("int"), Kind.CLUSTERING, 0),
        Column("a", parse("int")),
        Column("b", parse("text")),
        Column("l", parse("list<int>")),
        Column("s", parse("set<int>")),
        Column("m", parse("map<int, text>")),
        Column("un", U),
        Column("fr", parse("frozen<list<int>>")),
        Column("st", parse("int"), Kind.STATIC),
        Column("ss", parse("set<text>"), Kind.STATIC),
    ),
)


def histories() -> Any:
    """Load the recorded histories."""
    with gzip.open(DATA / "scylla-5.2-histories.json.gz", "rt") as file:
        return json.load(file)


@pytest.mark.parametrize("history", histories(), ids=lambda h: f"seed-{h['seed']}")
def test_the_fold_of_a_recorded_log_is_the_recorded_table(history: Any) -> None:
    """The log of 1,200 statements, with batches and range deletes, reproduces every cell."""
    log, base = Result.from_recording(history["log"]), Result.from_recording(history["base"])
    names = [name for name, _ in log.columns]
    time_of = sort_key(parse("timeuuid"))
    rows = [dict(zip(names, row, strict=True)) for row in log.rows]
    rows.sort(key=lambda row: (time_of(row["cdc$time"] or b""), row["cdc$batch_seq_no"]))
    fold = Fold(BASE).apply(rows)
    now = int(time.time())
    folded = [row for p in fold.partitions.values() for row in select_all(p, now)]
    assert sorted(map(repr, folded)) == sorted(map(repr, base.rows))
