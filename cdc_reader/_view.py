"""`View` gives an object views, which share what it learns but differ in a few attributes."""

from __future__ import annotations

from copy import copy
from typing import Self


class View:
    """An object whose views share its `__dict__`, and have their own attributes in `__slots__`.

    What an object learns through one view, all of its views know.
    """

    __slots__ = ("__dict__", "__weakref__", "_first")

    def _view(self, **own: object) -> Self:
        """Return a view of this object with the attributes `own`, which must be in `__slots__`."""
        view = copy(self)  # copies the attributes in `__slots__`
        view.__dict__ = self.__dict__
        # The first object may be registered by a weak reference: it lives as long as its views.
        own.setdefault("_first", getattr(self, "_first", self))
        for name, value in own.items():
            setattr(view, name, value)
        return view
