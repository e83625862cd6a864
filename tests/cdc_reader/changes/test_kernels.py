"""Changes are the same with both kernels, even if one kernel unpickles changes of the other."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_reader import decoding
from cdc_reader.changes.arrays import Indices
from cdc_reader.changes.change import Change
from cdc_reader.changes.grouping import Grouping
from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import LogSchema
from cdc_reader.decoding.choice import MODULES, VARIABLE
from cdc_reader.streams.stream import StreamId
from tests.cdc_reader.decoding.conftest import kernel
from tests.cdc_reader.support.recorded_logs import histories

_PAGE = 1_000
_OPERATIONS = (*range(-4, 10), 42)
_NEVER_NULL = ("pk", "cdc$batch_seq_no")


def random_changes(count: int) -> Iterator[Change]:
    """Yield at least `count` changes of random rows. Each run yields the same changes.

    Each cell is null or a recorded value, whatever the row's operation and other cells are. The
    rows are therefore more varied than rows that a server logs.
    """
    draw = np.random.default_rng(7)
    recorded = histories()[-1]
    cells, schema, made = recorded.batch(), recorded.schema, 0
    while made < count:
        changes = Grouping(schema).feed(_random_page(draw, cells, schema))
        yield from changes
        made += len(changes)


def _random_page(
    draw: np.random.Generator, cells: pa.RecordBatch, schema: LogSchema
) -> pa.RecordBatch:
    ends = draw.random(_PAGE) < 0.5
    ends[-1] = True
    records: Indices = np.cumsum(ends) - ends
    times = [str(timeuuid.make(1_700_000_000_000_000 + n, bytes(8))) for n in range(_PAGE)]
    drawn = {
        "cdc$stream_id": pa.array([bytes(16)] * _PAGE),
        "cdc$time": pa.array(times).take(pa.array(records)),
        "cdc$end_of_batch": pa.array(ends),
        "cdc$operation": pa.array(draw.choice(_OPERATIONS, _PAGE), pa.int8()),
    }
    nulls = draw.random()
    for name in schema_names(schema):
        rows = draw.integers(0, cells.num_rows, _PAGE)
        mask = np.zeros(_PAGE, bool) if name in _NEVER_NULL else draw.random(_PAGE) < nulls
        drawn.setdefault(name, cells.column(name).take(pa.array(rows, mask=mask)))
    return pa.RecordBatch.from_pydict(
        {name: drawn[name] for name in schema_names(schema)},
        schema=decoding.arrow_schema(schema.columns),
    )


def test_what_is_computed_for_a_page_is_that_of_the_rows() -> None:
    """Attributes computed for a whole page equal those computed from each change's rows."""
    for change in random_changes(3_000):
        alone = copy.copy(change)  # made from its own rows, whose values are converted one by one
        assert type(change.stream) is StreamId
        assert (change.time, change.timestamp) == (alone.time, timeuuid.micros(change.time.bytes))
        assert (change.stream, change.seqs) == (alone.stream, alone.seqs)
        assert (change.ttl, change.is_static) == (alone.ttl, alone.is_static)
        ttls = {part.ttl for part in change.parts if part.is_live}
        assert change.ttl == (ttls.pop() if len(ttls) == 1 else None)
        assert (change.is_last, change.complete) == (alone.is_last, alone.complete)


def schema_names(schema: LogSchema) -> list[str]:
    """Return the names of the log's columns."""
    return [column.name for column in schema.columns]


def told(changes: list[Change]) -> list[str]:
    """Return the changes as text: the JSON and the repr of each change."""
    return [f"{json.dumps(change.to_dict())} {change!r}" for change in changes]


def main() -> None:
    """Make random changes with this process's kernel, and compare them with changes in a file.

    The result, the changes and their text are written to another file.
    """
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    theirs: list[Change] = pickle.loads((folder / "theirs").read_bytes())
    ours = list(random_changes(count))
    answer: dict[str, Any] = {"kernel": decoding.NAME, "told": told(ours), "ours": ours}
    answer["equal"] = theirs == ours and [*map(hash, theirs)] == [*map(hash, ours)]
    (folder / "answer").write_bytes(pickle.dumps(answer))


@pytest.mark.slow
@pytest.mark.parametrize(
    "count", [300, pytest.param(100_000, marks=[pytest.mark.nightly, pytest.mark.timeout(900)])]
)
def test_random_changes_are_the_same_with_both_kernels(tmp_path: Path, count: int) -> None:
    """Changes made or unpickled by either kernel are equal and have the same text."""
    [other] = MODULES.keys() - {decoding.NAME}
    kernel(other)  # skips or fails if the kernel is missing
    changes = list(random_changes(count))
    assert len(changes) >= count
    (tmp_path / "theirs").write_bytes(pickle.dumps(changes))
    subprocess.run(
        [sys.executable, "-m", "tests.cdc_reader.changes.test_kernels", str(tmp_path), str(count)],
        env={**os.environ, VARIABLE: other},
        cwd=Path(__file__).parents[3],
        check=True,
    )
    answer = pickle.loads((tmp_path / "answer").read_bytes())
    assert (answer["kernel"], answer["equal"]) == (other, True)
    assert answer["ours"] == changes
    assert answer["told"] == told(changes)


if __name__ == "__main__":
    main()
