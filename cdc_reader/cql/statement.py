"""A CQL statement and the values to bind to it."""

from __future__ import annotations

from enum import Enum
from typing import Any

from attrs import frozen

from cdc_reader.cql.types import CqlType


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"


UNSET = Unset.UNSET
"""The value to bind for a column that a statement must not change; None sets a column to null."""


@frozen
class Statement:
    """CQL with a ``?`` for each value, the values, and their types.

    Values are Python objects, as in a `Change`, or `UNSET`. A table needs only a few distinct
    statements, so preparing them is worthwhile.
    """

    cql: str
    types: tuple[CqlType, ...]
    values: tuple[Any, ...]
