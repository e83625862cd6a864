"""A CQL statement and the values to bind to it."""

from __future__ import annotations

from enum import Enum
from typing import Any

from attrs import frozen

from cdc_reader.cql_type import CqlType


class Unset(Enum):
    """What is bound for a column that a statement leaves alone; None is null."""

    UNSET = "unset"


UNSET = Unset.UNSET


@frozen
class Statement:
    """CQL with a ``?`` for each value; values are Python's, as `cdc_reader.value` has them.

    `types` are those of the values. The text is one of a few for each table, so that it pays
    to prepare it.
    """

    cql: str
    types: tuple[CqlType, ...]
    values: tuple[Any, ...]
