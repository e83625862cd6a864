from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.schema import Operation


def test_known_codes_have_their_names() -> None:
    """Each known operation has the server's code."""
    assert Operation(2) is Operation.INSERT
    assert Operation(-4) is Operation.SERVER_PARTITION_DELETE
    assert Operation(9) is Operation.POSTIMAGE


@given(st.integers(-128, 127))
def test_every_code_of_a_byte_is_an_operation(code: int) -> None:
    """Every one-byte code has a single `Operation` object, which equals its unpickled copy."""
    operation = Operation(code)
    assert operation == code
    assert Operation(code) is operation
    assert pickle.loads(pickle.dumps(operation)) == operation
    assert operation.is_known == (code in range(10) or code in (-3, -4))
