"""The times in columns of time UUIDs, as extracted by both kernels."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.timeuuid import MAX_MICROS, MIN_MICROS, make, micros
from cdc_reader.decoding.choice import MODULES
from tests.cdc_reader.decoding.conftest import kernel

MicrosOf = Callable[[pa.Array], pa.Array]
TIMES = st.builds(make, st.integers(MIN_MICROS, MAX_MICROS), st.binary(min_size=8, max_size=8))
ANY = st.uuids()
"""Any time UUID. Only some have a whole number of microseconds."""


@pytest.fixture(scope="session", params=sorted(MODULES))
def micros_of(request: pytest.FixtureRequest) -> MicrosOf:
    """The `micros_of` function of each kernel in turn."""
    found: MicrosOf = kernel(request.param).micros_of
    return found


@given(st.lists(TIMES | ANY, max_size=9))
def test_each_time_is_found(micros_of: MicrosOf, times: list[uuid.UUID]) -> None:
    """Each time is extracted, even from a slice and even if it is before 1970."""
    around = [uuid.UUID(int=0)]
    column = pa.array([*map(str, [*around, *times, *around])])[1:-1]
    found = micros_of(column)
    assert found.type == pa.int64()
    assert found.to_pylist() == [micros(time.bytes) for time in times]


@pytest.mark.parametrize("text", [None, "", "x" * 36, str(uuid.UUID(int=1))[:-1]])
def test_what_is_no_uuid_is_refused(micros_of: MicrosOf, text: str | None) -> None:
    """Text that is not a UUID, nulls and other Arrow types are rejected."""
    with pytest.raises(ValueError):  # noqa: PT011 - the messages differ
        micros_of(pa.array([str(uuid.UUID(int=1)), text], pa.string()))
    with pytest.raises(ValueError, match="found 0 nulls among large_string"):
        micros_of(pa.array([str(uuid.UUID(int=1))], pa.large_string()))


@pytest.mark.parametrize("place", [*range(8), *range(9, 13), *range(14, 18)])
def test_only_hexadecimal_digits_are_accepted(place: int) -> None:
    """Only hexadecimal digits are accepted, although the compiled kernel checks eight at a time."""
    text = list(str(uuid.UUID(int=2**128 - 1)))
    taken = set()
    for text[place] in map(chr, range(128)):
        with suppress(ValueError):
            kernel("cython").micros_of(pa.array(["".join(text)]))
            taken.add(text[place])
    assert taken == set("0123456789abcdef")
