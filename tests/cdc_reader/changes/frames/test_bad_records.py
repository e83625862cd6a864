"""The work that bad records take, in proportion to their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_reader.changes.frames.bad_records import Origins
from cdc_reader.decoding.faults import Fault, with_faults


class _Counted(np.ndarray[Any, np.dtype[Any]]):
    """An array that counts how often its items are read."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        type(self).reads += 1
        return super().__getitem__(index)


def origins(count: int) -> Origins:
    """Return the origins of `count` changes of two rows, of which only the first one is bad."""
    faults = {2 * row: [Fault("v", f"reason {row}", f"0x{row:x}")] for row in range(count)}
    batch = with_faults(pa.record_batch({"v": pa.nulls(2 * count, pa.int32())}), faults)
    changes = np.repeat(np.arange(count), 2).view(_Counted)
    return Origins(batch, np.arange(1, 2 * count, 2), changes, np.ones(count, bool))


def reads(count: int) -> int:
    """Return how often the changes of rows are looked up to quarantine `count` changes."""
    made = origins(count)
    before = _Counted.reads
    cells = made.quarantined().to_pylist()
    assert [cell["reason"] for cell in cells] == [f"reason {number}" for number in range(count)]
    assert [cell["record"] for cell in cells] == [f'[{{"v": "0x{n:x}"}}]' for n in range(count)]
    return _Counted.reads - before


def test_the_work_grows_in_proportion_to_the_bad_records() -> None:
    """Ten times as many bad records take ten times as many look-ups, not a hundred times."""
    assert reads(500) == pytest.approx(10 * reads(50), rel=0.1)
