"""What a merge need not read of a copy."""

from __future__ import annotations

import pyarrow as pa

from cdc_reader.copies.columns import CopyColumns
from cdc_reader.copies.merging import Merge, always_set

COLUMNS = CopyColumns(["pk", "v", "w"], ["pk"], [], [], "_state", None)


def test_a_column_that_all_updates_set_is_not_read() -> None:
    """Deletes set no column, and do not matter."""
    flags = COLUMNS.flags
    updates = pa.table(
        {
            COLUMNS.kind: ["upsert", "replace", "delete"],
            flags["v"]: [True, True, False],
            flags["w"]: [False, True, True],
        }
    )
    assert always_set(COLUMNS, updates) == ["v"]
    merge = Merge(COLUMNS, always_set=["v"])
    assert merge.updates["v"] == "s.`v`"
    assert "t.`w`" in merge.updates["w"]
    read = " ".join([*merge.updates.values(), merge.is_gone, merge.is_new])
    assert "t.`v`" not in read
