"""Tests that vectors, as literals and as JSON, are stored as the driver serializes them."""

import json
from typing import Any

import pytest
from cassandra.cqltypes import lookup_casstype

from cdc_reader.cql.types import parse
from cdc_reader.testing.embedded.protocol.types import class_name


@pytest.mark.parametrize(
    ("of_type", "literal", "value"),
    [
        ("vector<float, 2>", "[1.5, -0.0]", [1.5, -0.0]),
        ("vector<text, 3>", f"['', 'é', '{'x' * 300}']", ["", "é", "x" * 300]),
        ("vector<smallint, 2>", "[1, -1]", [1, -1]),
        ("vector<vector<bigint, 1>, 2>", "[[1], [2]]", [[1], [2]]),
        ("vector<vector<text, 1>, 2>", "[['a'], ['bc']]", [["a"], ["bc"]]),
        ("vector<frozen<list<int>>, 2>", "[[1, 2], []]", [[1, 2], []]),
    ],
)
def test_elements_without_a_fixed_width_have_lengths(
    shell: Any, of_type: str, literal: str, value: Any
) -> None:
    """Only elements of variable width are stored with their lengths."""
    shell.run(f"CREATE TABLE t (p int PRIMARY KEY, v {of_type})")
    shell.run(f"INSERT INTO t (p, v) VALUES (1, {literal})")
    shell.run("INSERT INTO t JSON ?", json.dumps({"p": 2, "v": value}).encode())
    codec = lookup_casstype(class_name(parse(of_type)))
    assert shell.rows("SELECT v FROM t") == [(codec.serialize(value, 4),)] * 2
