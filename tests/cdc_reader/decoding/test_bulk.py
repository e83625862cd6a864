"""Both kernels create objects in bulk that equal objects created one by one."""

from __future__ import annotations

import gc
import pickle
from itertools import repeat
from types import ModuleType
from typing import Any

import attrs
import pytest

from cdc_reader.changes.delta import CollectionDelta, Deleted, Set
from cdc_reader.cql.values import FrozenDict
from cdc_reader.decoding.choice import MODULES
from tests.cdc_reader.decoding.conftest import kernel


@pytest.fixture(params=sorted(MODULES))
def bulk(request: pytest.FixtureRequest) -> ModuleType:
    """Each kernel in turn."""
    return kernel(request.param)


def test_instances_are_as_their_class_makes_them(bulk: ModuleType) -> None:
    """They are equal, immutable, hashable, and can be pickled."""
    values = [1, None, "x", FrozenDict(a=1)]
    made = bulk.instances(Set, len(values), values)
    assert made == [Set(value) for value in values]
    assert set(made) == {Set(value) for value in values}
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made[0].value = 2


def test_instances_have_a_column_for_each_attribute(bulk: ModuleType) -> None:
    """A constant is repeated; a missing column raises ValueError."""
    added = [frozenset([1]), frozenset([2])]
    made = bulk.instances(CollectionDelta, 2, repeat(True), added, repeat(frozenset[int]()))
    assert made == [CollectionDelta(True, elements) for elements in added]
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        bulk.instances(CollectionDelta, 2, repeat(True))


def test_no_instances(bulk: ModuleType) -> None:
    """This covers a count of zero, and classes without attributes."""
    assert bulk.instances(Set, 0, []) == []
    assert bulk.instances(Deleted, 2) == [Deleted(), Deleted()]


def test_instances_are_collected(bulk: ModuleType) -> None:
    """The garbage collector tracks the instances, so it frees a cycle of them."""

    def alive() -> list[Any]:
        return [found for found in gc.get_objects() if type(found) is Set and found.value is cycle]

    cycle: list[Any] = []
    cycle += bulk.instances(Set, 3, repeat(cycle))
    assert len(alive()) == 3
    cycle = []
    gc.collect()
    assert not alive()


def test_a_class_that_makes_its_instances_itself_is_refused(bulk: ModuleType) -> None:
    """Its own constructor code would be skipped."""
    with pytest.raises(TypeError):
        bulk.instances(FrozenDict, 1)


def test_values_are_put_into_their_mappings(bulk: ModuleType) -> None:
    """Keys are in the order in which they were added."""
    mappings: list[FrozenDict[str, int]] = [FrozenDict(), FrozenDict(z=0)]
    bulk.put_all(mappings, "b", [1, 2])
    bulk.put_all(mappings, "a", [3, 4])
    assert [list(mapping.items()) for mapping in mappings] == [
        [("b", 1), ("a", 3)],
        [("z", 0), ("b", 2), ("a", 4)],
    ]
