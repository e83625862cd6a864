"""Each CQL type has a Spark type that converts to the kernel's Arrow type."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cdc_reader.changes.frames.value_types import ValueTypes
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import Column, TableSchema
from cdc_reader.cql.types import (
    NATIVE_TYPES,
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
)
from pyspark_scylla_cdc.schema import spark_schema, spark_type

BASE = TableSchema(TableName("ks", "t"), (Column("x", Native("int")),))
NATIVES = st.sampled_from(sorted(NATIVE_TYPES)).map(Native)
IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
)
"""The argument for the time zone UTC. Spark 4.0 and 4.1 use UTC, and lack the argument."""


def nested(inner: st.SearchStrategy[CqlType]) -> st.SearchStrategy[CqlType]:
    """Draw types that contain other types."""
    parts = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(ListType),
        inner.map(SetType),
        st.builds(MapType, NATIVES, inner),
        parts.map(lambda types: TupleType(tuple(types))),
        parts.map(lambda types: UserType("ks", "u", tuple(zip("abc", types, strict=False)))),
        st.builds(VectorType, inner, st.just(3)),
    )


@given(st.recursive(NATIVES, nested, max_leaves=8))
def test_there_and_back(cql_type: CqlType) -> None:
    """A Spark schema converts back to exactly the Arrow schema from which it was made."""
    schema = pa.schema(ValueTypes().fields([Column("x", cql_type)]))
    assert to_arrow_schema(spark_schema(schema, BASE), **IN_UTC).equals(schema)


@given(st.recursive(NATIVES, nested, max_leaves=8))
def test_schema_travels_as_json(cql_type: CqlType) -> None:
    """A schema survives conversion to JSON, the form in which Spark sends it between processes."""
    schema = spark_schema(pa.schema(ValueTypes().fields([Column("x", cql_type)])), BASE)
    assert StructType.fromJson(schema.jsonValue()) == schema


@pytest.mark.parametrize("unknown", [pa.large_string(), pa.binary(16), pa.timestamp("ns")])
def test_types_unknown_to_spark_are_refused(unknown: pa.DataType) -> None:
    """An Arrow type that Spark would misread raises an error."""
    with pytest.raises(TypeError, match="has no Spark type"):
        spark_type(unknown)
