"""Imports the public names of a package on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from cdc_reader._extras import with_extra


def homes(names: Mapping[str, str]) -> dict[str, str]:
    """Return the module of each name, sorted; `names` maps a module to names, as one text."""
    found = {name: module for module, listed in names.items() for name in listed.split()}
    return dict(sorted(found.items()))


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package; `homes` maps each name to the module to import."""

    def imported(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as error:
            raise with_extra(f"{package}.{name}", error) from None

    return imported
