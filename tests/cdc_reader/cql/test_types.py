"""Every table of native types has all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cdc_reader.cluster import values as cluster_values
from cdc_reader.cql import json, values
from cdc_reader.cql.types import NATIVE_TYPES
from cdc_reader.decoding import scalars
from cdc_reader.decoding.arrow_type import NATIVE

TABLES = {
    "cql.values": values._NATIVE,
    "cql.json": json._NATIVE,
    "cluster.values": cluster_values._NATIVE,
    "cluster.values, bytes": cluster_values._SERIALISERS,
    "decoding.arrow_type": NATIVE,
    "decoding.scalars": scalars.SCALARS,
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_no_type_is_forgotten(table: Mapping[str, Any]) -> None:
    """A type missing from a table would be left unconverted, or fail when it is read."""
    assert table.keys() == NATIVE_TYPES
