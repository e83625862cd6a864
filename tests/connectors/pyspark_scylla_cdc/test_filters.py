"""Why filters are options: how Spark treats a Python source that supports filter pushdown.

The tests use a separate source. If a test fails, Spark may have changed so that this project's
source can support filters: see "Filters" in docs/reference/spark-options.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENABLED = "spark.sql.python.filterPushdown.enabled"

pytestmark = [
    pytest.mark.slow,  # These tests are about Spark, not the source.
    pytest.mark.spark,
    pytest.mark.skipif(
        not hasattr(DataSourceReader, "pushFilters"),
        reason="Spark 4.0 passes no filters to a Python source",
    ),
]


class Numbers(DataSource):
    """A source of the numbers 0, 1 and 2. If Spark pushes `number = x`, it returns only x."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number int"

    def reader(self, schema: Any) -> DataSourceReader:
        del schema
        return NumbersReader()


class NumbersReader(DataSourceReader):
    """Accepts equality filters, and leaves all others to Spark."""

    wanted: tuple[Any, ...] = (0, 1, 2)

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:  # noqa: N802 - Spark's name
        for given in filters:
            if type(given).__name__ == "EqualTo":
                self.wanted = (given.value,)
            else:
                yield given

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self.wanted)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        for number in partition.value:
            yield (number,)


@pytest.fixture
def numbers(spark: SparkSession) -> Iterator[DataFrame]:
    """A DataFrame of the source, with filter pushdown enabled."""
    spark.dataSource.register(Numbers)
    spark.conf.set(ENABLED, "true")
    yield spark.read.format("numbers").load()
    spark.conf.unset(ENABLED)


def values(frame: DataFrame) -> list[int]:
    """Return the numbers in a DataFrame."""
    return sorted(row.number for row in frame.collect())


def test_a_filter_loses_rows_of_other_queries(numbers: DataFrame) -> None:
    """Queries from one DataFrame share the last pushed filter, so rows are lost silently."""
    one, two = numbers.where("number = 1"), numbers.where("number = 2")
    assert values(one) == [1]
    assert values(one.union(two)) == [2, 2]  # expected: [1, 2]
    assert values(numbers) == [2]  # expected: [0, 1, 2]


def test_a_source_that_takes_filters_needs_a_setting(
    spark: SparkSession, numbers: DataFrame
) -> None:
    """Spark's default setting rejects each query of a source that accepts filters."""
    spark.conf.unset(ENABLED)
    with pytest.raises(AnalysisException, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        numbers.collect()
