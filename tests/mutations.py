"""Mutations: realistic defects, each of which a check with fixed inputs must detect."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from attrs import frozen


@frozen
class Mutation:
    """A defect: `broken` in place of the attribute `name` of `owner`."""

    owner: object
    name: str
    broken: Any

    def check_found(self, check: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
        """Assert that `check`, which passes without the defect, fails with it.

        Only a failed assertion counts. Any other error may come from a mutation that no longer
        fits the code.
        """
        monkeypatch.setattr(self.owner, self.name, self.broken)
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check()


def with_fixtures(check: Callable[..., None], request: pytest.FixtureRequest) -> Callable[[], None]:
    """Return the check with the fixtures that its parameters name."""
    names = inspect.signature(check).parameters
    return partial(check, **{name: request.getfixturevalue(name) for name in names})
