"""Numbers and masks pass between numpy and Arrow unchanged, for slices and nulls too."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader import _arrow

KINDS = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
}
FUNCTIONS = """
import sys
import numpy as np
from cdc_reader import _arrow
numbers = _arrow.to_arrow(np.arange(3), nulls=np.arange(3) == 1)
_arrow.to_numpy(numbers[2:]), _arrow.filled(numbers, -1), _arrow.valid(numbers)
_arrow.booleans(_arrow.to_arrow(np.arange(3) == 1)), _arrow.indices([1, 2]), _arrow.scalar(7)
print("pandas" in sys.modules)
"""


@st.composite
def columns(draw: st.DrawFn, kind: pa.DataType, cells: st.SearchStrategy[object]) -> pa.Array:
    """Draw a slice of a column with nulls."""
    column = pa.array(draw(st.lists(st.none() | cells, max_size=40)), kind)
    start = draw(st.integers(0, len(column)))
    return column.slice(start, draw(st.integers(0, len(column) - start)))


@given(st.sampled_from(list(KINDS)).flatmap(lambda kind: columns(kind, KINDS[kind])))
def test_numbers(column: pa.Array) -> None:
    """Numbers and the positions of nulls equal those of the column."""
    mask = np.array([cell is not None for cell in column.to_pylist()], bool)
    assert _arrow.valid(column).tolist() == mask.tolist()
    expected = [7 if cell is None else cell for cell in column.to_pylist()]
    found = _arrow.filled(column, 7)
    assert found.tolist() == expected
    assert _arrow.to_arrow(found, nulls=~mask).equals(column)
    if mask.all():
        assert _arrow.to_numpy(column).tolist() == column.to_pylist()
    else:
        with pytest.raises(ValueError, match="nulls among"):
            _arrow.to_numpy(column)


@given(columns(pa.bool_(), st.booleans()))
def test_booleans(column: pa.Array) -> None:
    """Nulls become False, and booleans stay unchanged."""
    found = _arrow.booleans(column)
    assert found.tolist() == [bool(cell) for cell in column.to_pylist()]
    assert _arrow.to_arrow(found, nulls=~_arrow.valid(column)).equals(column)


def test_columns_without_values() -> None:
    """All cells of a column of type null are null."""
    assert _arrow.valid(pa.nulls(3)).tolist() == [False] * 3


def test_scalars_and_indices() -> None:
    """Scalars have the requested type, and indices are 64-bit integers."""
    assert _arrow.scalar(5, pa.int32()).equals(pa.scalar(5, pa.int32()))
    assert _arrow.scalar(-(2**63)).equals(pa.scalar(-(2**63), pa.int64()))
    assert _arrow.indices([]).equals(pa.array([], pa.int64()))
    assert _arrow.NO_TEXT.equals(pa.scalar(""))


def test_pandas_is_not_imported() -> None:
    """No function makes Arrow import pandas."""
    ran = subprocess.run(
        [sys.executable, "-c", FUNCTIONS], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "False\n"
