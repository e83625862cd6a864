"""Decodes recorded cells with the driver, to compare other decoders with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cdc_reader.cluster.values import PROTOCOL_VERSION, driver_type
from cdc_reader.cql.types import UserType, parse
from tests.recordings.comparison import Result


def decoded(result: Result, *user_types: UserType) -> Iterator[dict[str, Any]]:
    """Yield the rows as dicts by column name. `user_types` are the UDTs that columns use."""
    named = {user_type.name: user_type for user_type in user_types}
    kinds = [driver_type(parse(text, named.__getitem__)) for _, text in result.columns]
    for row in result.rows:
        yield {
            name: kind.from_binary(cell, PROTOCOL_VERSION)
            for (name, _), kind, cell in zip(result.columns, kinds, row, strict=True)
        }
