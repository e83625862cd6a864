"""The public names: few, sorted, and there."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize("package", ["cdc_reader", "cdc_reader.testing", "pyspark_scylla_cdc"])
def test_all_names_what_can_be_imported(package: str) -> None:
    """`__all__` is sorted, and each name in it is there."""
    module = import_module(package)
    assert list(module.__all__) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("package", ["cdc_reader", "cdc_reader.testing"])
def test_a_name_that_is_not_there_is_an_attribute_error(package: str) -> None:
    """Lazy packages answer for unknown names as any module does."""
    with pytest.raises(AttributeError, match="nonesuch"):
        getattr(import_module(package), "nonesuch")  # noqa: B009 - mypy knows it is not there
