"""The option `decimalType`: numbers are read exactly or not at all."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cdc_reader.errors import ConfigurationError
from tests.connectors.pyspark_scylla_cdc.conftest import Execute, Rows


@pytest.mark.parametrize(
    ("number", "enough"),
    [("12345678912345678912345", "decimal(38,15)"), ("0.0000000000000000001", "decimal(20,19)")],
)
def test_decimals_arrive_unchanged(execute: Execute, rows: Rows, number: str, enough: str) -> None:
    """A decimal is read exactly, or the query fails with an error that names the option."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, d decimal) WITH cdc = {'enabled': true}",
        f"INSERT INTO {{t}} (pk, d) VALUES (1, {number})",
    )
    assert [Decimal(row["d"]) for row in rows()] == [Decimal(number)]
    assert [row["d"] for row in rows(decimalType=enough)] == [Decimal(number)]
    with pytest.raises(ConfigurationError, match=r"^decimalType is .*column d holds"):
        rows(decimalType="decimal(38,18)")
