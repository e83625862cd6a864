"""Many values at a time are the values that are made one by one."""

from __future__ import annotations

import pickle
from itertools import repeat

import attrs
import pytest

from cdc_reader import bulk
from cdc_reader.delta import CollectionDelta, Set
from cdc_reader.value import FrozenDict


def test_instances_are_as_their_class_makes_them() -> None:
    """Equal, hashed and pickled alike, and as immutable."""
    values = [1, None, "x", FrozenDict(a=1)]
    made = bulk.instances(Set, len(values), values)
    assert made == [Set(value) for value in values]
    assert set(made) == {Set(value) for value in values}
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made[0].value = 2  # type: ignore[misc]  # what is tested


def test_instances_have_a_column_for_each_attribute() -> None:
    """One that is the same for all is repeated; one that is missing is an error."""
    added = [frozenset([1]), frozenset([2])]
    made = bulk.instances(CollectionDelta, 2, repeat(True), added, repeat(frozenset[int]()))
    assert made == [CollectionDelta(True, elements) for elements in added]
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        bulk.instances(CollectionDelta, 2, repeat(True))


def test_values_are_put_into_their_mappings() -> None:
    """In the order of the calls, each under the name."""
    mappings: list[FrozenDict[str, int]] = [FrozenDict(), FrozenDict(z=0)]
    bulk.put(mappings, "b", [1, 2])
    bulk.put(mappings, "a", [3, 4])
    assert [list(mapping.items()) for mapping in mappings] == [
        [("b", 1), ("a", 3)],
        [("z", 0), ("b", 2), ("a", 4)],
    ]
